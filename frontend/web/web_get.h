#pragma once

// One GET with its redirects. Blocking; thread: any.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "frontend/web/web_connection.h"
#include "frontend/web/web_url.h"

namespace tandem {

struct WebRequest {
  WebUrl url;
  // A header ("Authorization: …") that only servers of this origin ever see.
  std::string credentials, credentials_origin;
  std::optional<std::pair<int64_t, int64_t>> range = {};  // bytes [first, second)
};

struct WebReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  WebUrl url;                                  // after the redirects
  bool was_cut = false;                        // the connection ended before the body did

  std::string Header(const std::string& name) const;  // "" where there is none
};

// Gets each piece of the last response's body; false: no more is wanted.
using BodySink = std::function<bool(const WebReply& head, std::string_view piece)>;

// A response of any status but a redirect that is followed. UNAVAILABLE: no connection, or cut
// before the body; FAILED_PRECONDITION: a redirect that is refused (too many, from https to http,
// not a URL, or none); what the access' checks and WebConnection::Open refuse.
StatusOr<WebReply> HttpGet(const WebRequest& request, const WebAccess& access,
                           const BodySink& sink);

}  // namespace tandem
