"""Security of the REST API: authentication, authorisation, and requests that are refused outright."""
