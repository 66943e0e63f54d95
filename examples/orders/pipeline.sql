/* firesteel
name: orders
description: Revenue per country and month, and the ten best customers
variables:
  data: data
  out: out
settings:
  spark:
    spark.sql.session.timeZone: UTC
*/

-- The same job as pipeline.yaml, as Spark SQL: each statement is a vertex.
--
--   firesteel run examples/orders/pipeline.sql --show 5

CREATE TEMPORARY VIEW orders (
  order_id BIGINT,
  customer_id BIGINT,
  ordered_at TIMESTAMP,
  quantity INT,
  unit_price DECIMAL(8,2),
  status STRING)
COMMENT 'One line per order from the shop'
USING csv
OPTIONS (path '${data}/orders.csv', header 'true');

CREATE TEMPORARY VIEW customers (customer_id BIGINT, name STRING, country STRING)
COMMENT 'Who they are and where they live'
USING csv
OPTIONS (path '${data}/customers.csv', header 'true');

-- What SQL has no words for stands in a comment before the statement.
-- firesteel: {cache: true}
CREATE TEMPORARY VIEW sales
COMMENT 'Orders that count, with the customer\'s name and country'
AS
SELECT
  o.customer_id,
  c.name,
  c.country,
  date_format(o.ordered_at, 'yyyy-MM') AS month,
  o.quantity * o.unit_price AS amount
FROM orders AS o
JOIN customers AS c ON c.customer_id = o.customer_id
WHERE o.status <> 'cancelled';

CREATE TEMPORARY VIEW revenue_by_month AS
SELECT
  country,
  month,
  count(*) AS orders,
  count(DISTINCT customer_id) AS customers,
  CAST(sum(amount) AS DECIMAL(12, 2)) AS revenue
FROM sales
GROUP BY country, month
ORDER BY country, month;

CREATE TEMPORARY VIEW best_customers AS
SELECT
  customer_id,
  name,
  country,
  count(*) AS orders,
  CAST(sum(amount) AS DECIMAL(12, 2)) AS revenue
FROM sales
GROUP BY customer_id, name, country
ORDER BY revenue DESC, customer_id
LIMIT 10;

-- firesteel: {description: For the warehouse}
INSERT OVERWRITE revenue USING parquet OPTIONS (path '${out}/revenue') TABLE revenue_by_month;

-- firesteel: {description: For the people in marketing and their spreadsheets}
INSERT OVERWRITE best USING csv OPTIONS (path '${out}/best_customers', header 'true') TABLE best_customers;
