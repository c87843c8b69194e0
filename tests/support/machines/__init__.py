"""Machines that a pipeline runs on, and the stores that they share.

stores             an S3 and an HDFS for checkpoints
throttling         an endpoint before the S3 that answers some requests with 503
yarn               a YARN of two nodes
bare_machine       the environment of a machine without this project
image              the image of conf/deploy, built and run by podman or docker
"""
