#pragma once

// The proxy that the environment names for a URL: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY,
// in either case (http_proxy only in small letters, as curl: a CGI server sets the other).
// Thread: any while nobody changes the environment.

#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "frontend/web/web_url.h"

namespace tandem {

// nullopt: none. INVALID_ARGUMENT: a proxy that is no http:// URL.
StatusOr<std::optional<WebUrl>> ProxyFor(const WebUrl& url);

// Whether a list "host, .domain, host:port, *" names the URL's host; a name also means its
// subdomains.
bool IsInNoProxy(std::string_view list, const WebUrl& url);

}  // namespace tandem
