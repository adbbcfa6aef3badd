#pragma once

// Talks to a hub: small texts whole, files in ranges. Tries again where that can help (cut or
// refused connections, 408, 429, 5xx), waits as long as Retry-After says, and says so on stderr.
// Thread: any number; immutable.
// Failure: messages that a user can act on. UNAVAILABLE: tries are used up. UNAUTHENTICATED,
// PERMISSION_DENIED, NOT_FOUND: 401, 403, 404. DATA_LOSS: the hub contradicts itself.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "deploy/cli/hub/hub_settings.h"
#include "frontend/web/web_get.h"

namespace tandem {

struct HubText {
  std::string body;
  std::string next_page;  // target of the page that follows; "" at the last one
};

class HubClient {
 public:
  static StatusOr<std::unique_ptr<HubClient>> Create(HubSettings settings);

  const HubSettings& settings() const { return settings_; }

  // `target`: path and query below the endpoint. `what` names it in messages.
  StatusOr<HubText> GetText(const std::string& target, const std::string& what,
                            size_t max_bytes) const;

  // Bytes [begin, end) of a file of `size` bytes, in order. on_bytes may refuse: its error is
  // returned. *is_whole is set when the hub sends the file from its beginning whatever is asked
  // for: then on_bytes has got nothing unless begin was 0, and may get more than up to `end`.
  Status GetRange(const std::string& target, const std::string& what, int64_t size, int64_t begin,
                  int64_t end, bool* is_whole,
                  const std::function<Status(std::string_view)>& on_bytes) const;

 private:
  explicit HubClient(HubSettings settings) : settings_(std::move(settings)) {}
  WebRequest RequestFor(const std::string& target) const;
  Status ErrorOf(const WebReply& reply, const std::string& what) const;

  HubSettings settings_;
  std::unique_ptr<TlsTrust> trust_;
};

}  // namespace tandem
