#include "frontend/tracing/http_url.h"

#include <algorithm>
#include <cstdint>

#include "common/strings.h"

namespace tandem {

std::string HttpUrl::authority() const {
  const bool is_v6 = host.find(':') != host.npos;
  const std::string name = is_v6 ? "[" + host + "]" : host;
  return port == (is_tls ? "443" : "80") ? name : name + ":" + port;
}

std::string HttpUrl::text() const {
  return (is_tls ? "https://" : "http://") + authority() + target;
}

StatusOr<HttpUrl> ParseHttpUrl(std::string_view text) {
  const auto bad = [text](const std::string& what) {
    return InvalidArgumentError("URL '" + std::string(text) + "': " + what);
  };
  if (!std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; })) {
    return bad("must be printable ASCII without blanks");
  }
  HttpUrl url;
  const size_t colon = text.find("://");
  const std::string scheme = ToLower(text.substr(0, colon == text.npos ? 0 : colon));
  if (scheme != "http" && scheme != "https") return bad("must begin with http:// or https://");
  url.is_tls = scheme == "https";
  std::string_view rest = text.substr(colon + 3);
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  url.target = rest.substr(end, rest.find('#') - end);
  if (url.target.starts_with('?')) url.target.insert(0, "/");
  if (authority.find('@') != authority.npos) {
    return bad("a user and a password go into a header (OTEL_EXPORTER_OTLP_HEADERS)");
  }
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == authority.npos) return bad("'[' without ']'");
    url.host = authority.substr(1, bracket - 1);
    port = authority.substr(bracket + 1);
    if (!port.empty() && !port.starts_with(':')) return bad("after ']' comes ':' and the port");
  } else {
    const size_t separator = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, separator);
    port = authority.substr(separator);
  }
  if (url.host.empty()) return bad("has no host");
  if (port.empty()) {
    url.port = url.is_tls ? "443" : "80";
    return url;
  }
  const auto number = ParseNumber<uint16_t>(port.substr(1));
  if (!number || *number == 0) return bad("the port must be a number from 1 to 65535");
  url.port = std::to_string(*number);
  return url;
}

}  // namespace tandem
