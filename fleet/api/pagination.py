"""Pages of 100, by number, with the total: lists here are short and operators jump."""

from rest_framework.pagination import PageNumberPagination


class Pages(PageNumberPagination):
    page_size = 100
    page_size_query_param = "pageSize"
    max_page_size = 1000
