"""oj-gateway: the HTTP API and the web page, under uWSGI."""
