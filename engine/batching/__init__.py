"""Which batch does a request ride in, and when does that batch leave?"""
