#include "engine_core/kv_cache/extra_keys.h"

namespace tandem {

std::vector<std::string> ExtraKeys::EventValues(int32_t block_idx, int32_t block_size) const {
  std::vector<std::string> values;
  if (adapter.id != 0) values.push_back(adapter.name);
  const int32_t begin = block_idx * block_size;
  for (const MultimodalItem& item : items) {
    if (item.Overlaps(begin, begin + block_size)) values.push_back(item.identifier);
  }
  if (block_idx == 0 && !cache_salt.empty()) values.push_back(cache_salt);
  return values;
}

}  // namespace tandem
