"""Pages: what people open in a browser to watch a loop, look up decisions and approve policies."""

from consequential.service.pages.charts import import_libraries
from consequential.service.pages.rendering import compile_templates
from consequential.service.pages.views import help_page, routes, wants_page

__all__ = ["compile_templates", "help_page", "import_libraries", "routes", "wants_page"]
