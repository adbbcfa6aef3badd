#pragma once

// The keys of which a request to a guarded route must carry one. Thread: any; Replace exchanges all
// keys at once while requests are checked. Holds them in memory only.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/http/router.h"

namespace tandem {

class ApiKeys {
 public:
  explicit ApiKeys(std::vector<std::string> keys) { Replace(std::move(keys)); }
  ApiKeys(const ApiKeys&) = delete;

  // Without keys every request may pass. Otherwise it must carry one as OpenAI's clients send it
  // (a bearer token), or Anthropic's (X-Api-Key).
  bool Admits(const HttpRequest& request) const;
  void Replace(std::vector<std::string> keys);

 private:
  std::atomic<std::shared_ptr<const std::vector<std::string>>> keys_;
};

// One key per line; empty lines and those that begin with '#' are no keys. INVALID_ARGUMENT when
// there is none: a file that was emptied by mistake must not open the server.
StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path);

}  // namespace tandem
