#include "frontend/web/web_proxy.h"

#include <cstdlib>

#include "common/strings.h"

namespace tandem {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FirstOf(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = Variable(name); !value.empty()) return value;
  }
  return "";
}

}  // namespace

bool IsInNoProxy(std::string_view list, const WebUrl& url) {
  const std::string host = ToLower(url.host);
  for (std::string_view entry : Split(list, ',')) {
    std::string name = ToLower(StripAscii(entry));
    if (name == "*") return true;
    if (name.starts_with("*.")) name.erase(0, 1);
    if (name.ends_with(":" + url.port) && name.find(':') == name.rfind(':')) {
      name.resize(name.size() - url.port.size() - 1);
    }
    if (name.starts_with('.')) name.erase(0, 1);
    if (name.empty()) continue;
    if (host == name || host.ends_with("." + name)) return true;
  }
  return false;
}

StatusOr<std::optional<WebUrl>> ProxyFor(const WebUrl& url) {
  const std::string text = url.is_tls
                               ? FirstOf({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                               : FirstOf({"http_proxy", "all_proxy", "ALL_PROXY"});
  if (text.empty() || IsInNoProxy(FirstOf({"no_proxy", "NO_PROXY"}), url)) {
    return std::optional<WebUrl>();
  }
  const bool has_scheme = text.find("://") != text.npos;
  const StatusOr<WebUrl> proxy = ParseWebUrl(has_scheme ? text : "http://" + text);
  if (!proxy.ok() || proxy->is_tls) {
    return InvalidArgumentError(
        "the proxy that the environment names for " + url.Origin() +
        " cannot be used: it must be http://host:port (TLS to the hub goes through it)");
  }
  return std::optional(*proxy);
}

}  // namespace tandem
