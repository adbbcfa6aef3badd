#include "deploy/cli/bench/server_url.h"

namespace tandem {
namespace {

Status BadUrl(std::string_view url, std::string_view why) {
  return InvalidArgumentError("--base-url is '" + std::string(url) + "', " + std::string(why));
}

}  // namespace

std::string ServerUrl::HostHeader() const {
  if (!socket_path.empty()) return "localhost";
  const std::string name = host.find(':') == host.npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

StatusOr<ServerUrl> ParseServerUrl(std::string_view url) {
  ServerUrl parsed;
  std::string_view rest = url;
  constexpr std::string_view kHttp = "http://", kHttps = "https://", kUnix = "unix:";
  if (rest.starts_with(kUnix)) {
    parsed.socket_path = std::string(rest.substr(kUnix.size()));
    if (parsed.socket_path.empty()) return BadUrl(url, "has no socket path");
    return parsed;
  }
  parsed.tls = rest.starts_with(kHttps);
  if (!parsed.tls && !rest.starts_with(kHttp)) {
    return BadUrl(url, "must start with http://, https:// or unix:");
  }
  rest.remove_prefix(parsed.tls ? kHttps.size() : kHttp.size());
  const size_t slash = rest.find('/');
  const std::string_view authority = rest.substr(0, slash);
  if (slash != rest.npos) {
    parsed.prefix = std::string(rest.substr(slash));
    while (parsed.prefix.ends_with('/')) parsed.prefix.pop_back();
  }
  // A bracketed IPv6 address has colons of its own.
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == authority.npos ? 0 : bracket);
  parsed.host = std::string(authority.substr(0, colon));
  parsed.port = parsed.tls ? "443" : "80";
  if (colon != authority.npos) parsed.port = std::string(authority.substr(colon + 1));
  if (parsed.host.starts_with('[') && parsed.host.ends_with(']')) {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  if (parsed.host.empty()) return BadUrl(url, "has no host");
  if (parsed.port.empty()) return BadUrl(url, "has an empty port");
  for (const char c : url) {
    if (static_cast<unsigned char>(c) <= ' ') return BadUrl(url, "has a blank in it");
  }
  return parsed;
}

std::string UrlOfHostAndPort(const std::string& host, int64_t port) {
  const bool bare_ipv6 = host.find(':') != host.npos && !host.starts_with('[');
  return "http://" + (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace tandem
