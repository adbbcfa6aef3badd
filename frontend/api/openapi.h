#pragma once

// /openapi.json and /docs: the API as it is, from the rows of the routes and of the field tables.
// Thread: any shard's; the first that is asked makes the text, in some 4 ms, for all of them.

#include <string>
#include <vector>

#include "frontend/http/router.h"

namespace tandem {

// OpenAPI 3.1, as JSON text. Rows without a description (Route::about) are left out.
// root_path: where a proxy has the server, or "".
std::string OpenApiDocument(const std::vector<Route>& routes, const std::string& root_path = "");

// A page that shows the document. It loads nothing but the document itself.
std::string_view DocsPage();

// The rows of both. The document describes `routes`, and these.
std::vector<Route> DocumentRoutes(std::vector<Route> routes, const std::string& root_path);

}  // namespace tandem
