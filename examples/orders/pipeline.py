"""The same job as pipeline.yaml, built with the Python API.

firesteel run examples/orders/pipeline.py --show 5
"""

from firesteel.jobgraph import Job

job = Job(
    "orders",
    description="Revenue per country and month, and the ten best customers",
    variables={"data": "data", "out": "out"},
    settings={"spark": {"spark.sql.session.timeZone": "UTC"}},
)

orders = job.source(
    "orders",
    "csv",
    description="One line per order from the shop",
    path="${data}/orders.csv",
    schema="order_id BIGINT, customer_id BIGINT, ordered_at TIMESTAMP, "
    "quantity INT, unit_price DECIMAL(8,2), status STRING",
    options={"header": True},
)

customers = job.source(
    "customers",
    "csv",
    description="Who they are and where they live",
    path="${data}/customers.csv",
    schema="customer_id BIGINT, name STRING, country STRING",
    options={"header": True},
)

sales = job.sql(
    "sales",
    """
SELECT
  o.customer_id,
  c.name,
  c.country,
  date_format(o.ordered_at, 'yyyy-MM') AS month,
  o.quantity * o.unit_price AS amount
FROM orders AS o
JOIN customers AS c ON c.customer_id = o.customer_id
WHERE o.status <> 'cancelled'
""",
    description="Orders that count, with the customer's name and country",
    cache=True,
)

revenue_by_month = job.sql(
    "revenue_by_month",
    """
SELECT
  country,
  month,
  count(*) AS orders,
  count(DISTINCT customer_id) AS customers,
  CAST(sum(amount) AS DECIMAL(12, 2)) AS revenue
FROM sales
GROUP BY country, month
ORDER BY country, month
""",
)

best_customers = job.sql(
    "best_customers",
    """
SELECT
  customer_id,
  name,
  country,
  count(*) AS orders,
  CAST(sum(amount) AS DECIMAL(12, 2)) AS revenue
FROM sales
GROUP BY customer_id, name, country
ORDER BY revenue DESC, customer_id
LIMIT 10
""",
)

job.sink(
    "revenue",
    revenue_by_month,
    description="For the warehouse",
    format="parquet",
    path="${out}/revenue",
    mode="overwrite",
)

job.sink(
    "best",
    best_customers,
    description="For the people in marketing and their spreadsheets",
    format="csv",
    path="${out}/best_customers",
    mode="overwrite",
    options={"header": True},
)
