#include "frontend/http/api_keys.h"

#include <string_view>
#include <utility>

#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr int64_t kMaxKeyFileBytes = 1 << 20;

bool IsAmong(const std::vector<std::string>& keys, std::string_view given) {
  bool found = false;
  for (const std::string& key : keys)
    found |= ConstantTimeEqual(key, given);  // every key, every time
  return found;
}

}  // namespace

bool ApiKeys::Admits(const HttpRequest& request) const {
  const std::shared_ptr<const std::vector<std::string>> keys = keys_.load();
  if (keys->empty()) return true;
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view header = request.Header("authorization");
  const bool is_bearer =
      header.size() >= kScheme.size() && ToLower(header.substr(0, kScheme.size())) == kScheme;
  return (is_bearer && IsAmong(*keys, header.substr(kScheme.size()))) ||
         IsAmong(*keys, request.Header("x-api-key"));
}

void ApiKeys::Replace(std::vector<std::string> keys) {
  keys_.store(std::make_shared<const std::vector<std::string>>(std::move(keys)));
}

StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeyFileBytes));
  std::vector<std::string> keys;
  for (const std::string_view line : Split(text, '\n')) {
    const std::string_view key = StripAscii(line);
    if (!key.empty() && key[0] != '#') keys.emplace_back(key);
  }
  if (keys.empty()) return InvalidArgumentError(path + ": has no key");
  return keys;
}

}  // namespace tandem
