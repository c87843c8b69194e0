"""Scripts for spark-submit and timers. Python puts a script's folder on its module path."""
