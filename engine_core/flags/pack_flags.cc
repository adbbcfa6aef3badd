#include "engine_core/flags/pack_flags.h"

namespace tandem {

std::vector<Flag> PackFlags(PackConfig& config) {
  return {{"pack-to", &config.out,
           "Write the model's packed matrices, with what else is read of a model, into this new "
           "folder, which then is a model that needs no packing; serves nobody"},
          {"verify-packed", &config.verifies,
           "Read all bytes of a model that was packed and compare them with their hashes; serves "
           "nobody"}};
}

}  // namespace tandem
