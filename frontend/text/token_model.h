#pragma once

// The `model` of tokenizer.json: turns one piece of text into token ids.
// Thread: Encode is safe on any thread.

#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of one piece, in time linear in it but for a logarithm. InvalidArgument when
  // the piece has no tokens and the model no token for what is unknown.
  virtual Status Encode(std::string_view piece, std::vector<TokenId>* ids) const = 0;
};

}  // namespace tandem
