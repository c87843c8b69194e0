-- The tax of the countries that we sell to; all others pay none.
SELECT
  *,
  ROUND(amount * (1 + CASE country WHEN 'DE' THEN 0.19 WHEN 'JP' THEN 0.10 ELSE 0.00 END), 2) AS gross
FROM paid
