"""What all HTTP servers and HTML pages share."""
