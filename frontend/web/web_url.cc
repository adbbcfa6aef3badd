#include "frontend/web/web_url.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "common/strings.h"

namespace tandem {
namespace {

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

// An IPv6 address, with its zone if it has one; the resolver reads it whole.
bool IsAddressInBrackets(std::string_view host) {
  return host.find(':') != host.npos &&
         std::ranges::all_of(host, [](char c) { return IsPlain(c) || c == ':' || c == '%'; });
}

// A registered name of RFC 3986.
bool IsHostName(std::string_view host) {
  constexpr std::string_view kOthers = "%!$&'()*+,;=";
  return std::ranges::all_of(
      host, [kOthers](char c) { return IsPlain(c) || kOthers.find(c) != kOthers.npos; });
}

// Host and port of "host", "host:port", "[::1]:port".
Status SplitAuthority(std::string_view authority, WebUrl* url) {
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == authority.npos) return InvalidArgumentError("'[' without ']'");
    url->host = authority.substr(1, bracket - 1);
    port = authority.substr(bracket + 1);
    if (!port.empty() && port[0] != ':') return InvalidArgumentError("after ']' comes ':'");
    if (!IsAddressInBrackets(url->host)) {
      return InvalidArgumentError("an IPv6 address must be between '[' and ']'");
    }
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url->host = authority.substr(0, colon);
    port = authority.substr(colon);
    if (url->host.empty()) return InvalidArgumentError("has no host");
    if (!IsHostName(url->host)) return InvalidArgumentError("the host's name has odd characters");
  }
  url->port = url->is_tls ? "443" : "80";
  if (port.empty()) return OkStatus();
  const auto number = ParseNumber<uint16_t>(port.substr(1));
  if (!number || *number == 0) return InvalidArgumentError("the port must be from 1 to 65535");
  url->port = std::to_string(*number);
  return OkStatus();
}

}  // namespace

std::string WebUrl::Authority() const {
  const std::string name = host.find(':') != host.npos ? "[" + host + "]" : host;
  return port == (is_tls ? "443" : "80") ? name : name + ":" + port;
}

std::string WebUrl::Origin() const { return (is_tls ? "https://" : "http://") + Authority(); }

StatusOr<WebUrl> ParseWebUrl(std::string_view text) {
  // Without the query, which may hold a signature.
  const std::string shown = "URL '" + std::string(text.substr(0, text.find('?'))) + "'";
  if (!std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; })) {
    return InvalidArgumentError("a URL must be printable ASCII without blanks");
  }
  WebUrl url;
  const size_t colon = text.find("://");
  const std::string scheme = ToLower(text.substr(0, colon == text.npos ? 0 : colon));
  if (scheme != "http" && scheme != "https") {
    return InvalidArgumentError(shown + ": must begin with http:// or https://");
  }
  url.is_tls = scheme == "https";
  const std::string_view rest = text.substr(colon + 3);
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  const size_t at = authority.rfind('@');
  if (at != authority.npos) {
    url.user = PercentDecode(authority.substr(0, at));
    authority.remove_prefix(at + 1);
  }
  if (const Status status = SplitAuthority(authority, &url); !status.ok()) {
    return status.WithContext(at == authority.npos ? shown : "URL");
  }
  const std::string_view target = rest.substr(end, rest.find('#', end) - end);
  url.target = (target.starts_with('/') ? "" : "/") + std::string(target);
  return url;
}

StatusOr<WebUrl> ResolveLocation(const WebUrl& base, std::string_view location) {
  if (location.empty()) return InvalidArgumentError("an empty Location");
  const std::string scheme = base.is_tls ? "https:" : "http:";
  if (location.starts_with("//")) return ParseWebUrl(scheme + std::string(location));
  if (location.starts_with('/')) return ParseWebUrl(base.Origin() + std::string(location));
  if (location.substr(0, location.find_first_of("/?#")).find(':') != location.npos) {
    return ParseWebUrl(location);
  }
  const std::string_view path = std::string_view(base.target).substr(0, base.target.find('?'));
  return ParseWebUrl(base.Origin() + std::string(path.substr(0, path.rfind('/') + 1)) +
                     std::string(location));
}

std::string PercentEncode(std::string_view text, std::string_view kept) {
  std::string encoded;
  for (const char c : text) {
    if (IsPlain(c) || kept.find(c) != kept.npos) {
      encoded += c;
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      encoded += {'%', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
    }
  }
  return encoded;
}

}  // namespace tandem
