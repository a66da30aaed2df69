"""Messages that are records of their own, as `message_files` reads them."""
