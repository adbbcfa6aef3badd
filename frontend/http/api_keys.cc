#include "frontend/http/api_keys.h"

#include <openssl/evp.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr int64_t kMaxKeyFileBytes = 1 << 20;

constexpr std::string_view kScheme = "bearer ";

bool IsInHeaders(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

std::string SaltOfKey(const std::string& key) {
  const std::string text = "tandem cache salt\n" + key;
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                   EVP_sha256(), nullptr) == 1);
  return HexEncode({digest.data(), size});
}

}  // namespace

std::shared_ptr<ApiKeys::Key> ApiKeys::Find(const Keys& keys, const HttpRequest& request) {
  const std::string_view header = request.Header("authorization");
  const bool is_bearer =
      header.size() >= kScheme.size() && ToLower(header.substr(0, kScheme.size())) == kScheme;
  const std::string_view bearer = is_bearer ? header.substr(kScheme.size()) : std::string_view();
  const std::string_view other = request.Header("x-api-key");
  std::shared_ptr<Key> found;
  for (const std::shared_ptr<Key>& key : keys) {  // every key, every time
    const bool is_it = (is_bearer && ConstantTimeEqual(key->text, bearer)) |
                       static_cast<int>(ConstantTimeEqual(key->text, other));
    if (is_it) found = key;
  }
  return found;
}

bool ApiKeys::Admits(const HttpRequest& request) const {
  const std::shared_ptr<const Keys> keys = keys_.load();
  return keys == nullptr || keys->empty() || Find(*keys, request) != nullptr;
}

void ApiKeys::Replace(std::vector<std::string> texts) {
  const std::shared_ptr<const Keys> old = keys_.load();
  auto keys = std::make_shared<Keys>();
  for (std::string& text : texts) {
    std::shared_ptr<Key> key;
    for (size_t i = 0; old != nullptr && i < old->size(); ++i) {
      if ((*old)[i]->text == text) key = (*old)[i];
    }
    if (key == nullptr) {
      key = std::make_shared<Key>();
      key->text = std::move(text);
      key->salt = SaltOfKey(key->text);
    }
    keys->push_back(std::move(key));
  }
  keys_.store(std::move(keys));
}

std::shared_ptr<void> ApiKeys::TakePlace(const HttpRequest& request) {
  const int64_t limit = places_per_key_;
  std::shared_ptr<Key> key = Find(*keys_.load(), request);
  if (key == nullptr) key = nobody_;
  const bool is_free = key->num_open.fetch_add(1, std::memory_order_relaxed) < limit || limit == 0;
  std::shared_ptr<void> place(
      key.get(), [key](void*) { key->num_open.fetch_sub(1, std::memory_order_relaxed); });
  return is_free ? place : nullptr;
}

std::string ApiKeys::SaltOf(const HttpRequest& request) const {
  const std::shared_ptr<Key> key = Find(*keys_.load(), request);
  return key == nullptr ? "" : key->salt;
}

StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeyFileBytes));
  std::vector<std::string> keys;
  int64_t line_number = 0;
  for (const std::string_view line : Split(text, '\n')) {
    ++line_number;
    const std::string_view key = StripAscii(line);
    if (key.empty() || key[0] == '#') continue;
    if (!std::ranges::all_of(key, IsInHeaders)) {
      return InvalidArgumentError(path + ": line " + std::to_string(line_number) +
                                  ": no header can carry such a key: it has control characters");
    }
    keys.emplace_back(key);
  }
  if (keys.empty()) return InvalidArgumentError(path + ": has no key");
  return keys;
}

}  // namespace tandem
