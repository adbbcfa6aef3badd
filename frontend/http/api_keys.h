#pragma once

// The keys of which a request to a guarded route must carry one. Thread: any; Replace exchanges all
// keys at once while requests are checked. Holds them in memory only.

#include <atomic>
#include <cstdint>
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
  // Keys that stay keep count of their open requests.
  void Replace(std::vector<std::string> keys);
  // How many requests a key may have open at once; 0: any number.
  void SetPlacesPerKey(int64_t places) { places_per_key_ = places; }
  int64_t places_per_key() const { return places_per_key_; }
  // A place among those of the request's key, given back when the last copy goes away; nullptr: it
  // has none left. Requests without a key, where none is needed, share one. REQUIRES:
  // Admits(request).
  std::shared_ptr<void> TakePlace(const HttpRequest& request);
  // A text for the request's key that no other key has, the same in every process, from which the
  // key cannot be read; "" without a key.
  std::string SaltOf(const HttpRequest& request) const;

 private:
  struct Key {
    std::string text;
    std::string salt;
    std::atomic<int64_t> num_open{0};
  };
  using Keys = std::vector<std::shared_ptr<Key>>;

  // The key that the request carries; nullptr: none of ours.
  static std::shared_ptr<Key> Find(const Keys& keys, const HttpRequest& request);

  std::atomic<std::shared_ptr<const Keys>> keys_;
  std::atomic<int64_t> places_per_key_{0};
  const std::shared_ptr<Key> nobody_ = std::make_shared<Key>();
};

// One key per line; empty lines and those that begin with '#' are no keys. INVALID_ARGUMENT when
// there is none: a file that was emptied by mistake must not open the server. Likewise for a key
// that no client can send, as a broken file has.
StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path);

}  // namespace tandem
