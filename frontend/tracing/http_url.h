#pragma once

// "http://host:port/path" in parts. Pure; any thread.

#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct HttpUrl {
  bool is_tls = false;
  std::string host;  // without brackets
  std::string port;
  std::string target;  // path and query; empty when the URL has none

  std::string authority() const;  // for the Host header
  std::string text() const;
};

// INVALID_ARGUMENT: another scheme, no host, a bad port, a user or blanks in it.
StatusOr<HttpUrl> ParseHttpUrl(std::string_view text);

}  // namespace tandem
