// The name has to be vLLM's, so it is MD5; nobody is kept out by it.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "engine_core/kv_transfer/prefix_key.h"

#include <openssl/md5.h>

#include <array>

#include "common/strings.h"

namespace tandem {

std::string PrefixKey(std::span<const TokenId> tokens, const ExtraKeys& extra_keys) {
  std::string text;
  text.reserve(tokens.size() * sizeof(int64_t));
  for (const TokenId token : tokens) {
    const auto id = static_cast<uint64_t>(int64_t{token});
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(id >> shift);
  }
  const char* separator = "";
  for (const MultimodalItem& item : extra_keys.items) {
    text += separator + item.identifier;
    separator = "-";
  }
  if (!extra_keys.cache_salt.empty()) text += "|cache_salt|" + extra_keys.cache_salt;
  std::array<uint8_t, MD5_DIGEST_LENGTH> digest{};
  MD5(reinterpret_cast<const uint8_t*>(text.data()), text.size(), digest.data());
  return HexEncode({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

}  // namespace tandem
