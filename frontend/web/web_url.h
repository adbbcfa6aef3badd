#pragma once

// An http or https URL in parts, and what a redirect makes of it. Pure; any thread.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct WebUrl {
  bool is_tls = false;
  std::string user;  // "user:password", percent-decoded; only of a proxy
  std::string host;  // without brackets
  std::string port;
  std::string target = "/";  // path and query

  std::string Authority() const;  // for the Host header: no port where it is the scheme's own
  std::string Origin() const;     // scheme and authority
  std::string Text() const { return Origin() + target; }
};

// INVALID_ARGUMENT: another scheme, no host or one that is none, a bad port, blanks or control
// characters.
StatusOr<WebUrl> ParseWebUrl(std::string_view text);

// Where `location`, a whole URL or one relative to `base`, leads.
StatusOr<WebUrl> ResolveLocation(const WebUrl& base, std::string_view location);

// All but letters, digits, "-._~" and what `kept` contains as %XX.
std::string PercentEncode(std::string_view text, std::string_view kept = "");

}  // namespace tandem
