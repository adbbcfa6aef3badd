#pragma once

// Unigram: the tokens whose scores (log probabilities) add up to the most for a piece.
// Thread: immutable after Create; any thread. Owns its tables.
// Create: InvalidArgument when there are no tokens, or the unknown token is none of them.
// Cost of Encode: bytes of the piece × bytes of the longest token; no recursion.

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/text/byte_trie.h"
#include "frontend/text/token_model.h"

namespace tandem {

struct UnigramOptions {
  std::optional<TokenId> unknown_id;
  bool byte_fallback = false;     // unknown characters become the tokens <0xNN> of their bytes
  bool single_precision = false;  // scores add up as floats, which decides ties
  // Where it is given: of each token, whether text may become it. The others count for nothing.
  std::vector<bool> usable;
};

class Unigram : public TokenModel {
 public:
  // A token's id is its position.
  static StatusOr<Unigram> Create(const std::vector<std::pair<std::string, double>>& tokens,
                                  UnigramOptions options);
  Status Encode(std::string_view piece, std::vector<TokenId>* ids) const override;

 private:
  struct Best {  // way to get to a position
    double score = 0;
    TokenId id = -1;
    int32_t begin = -1;  // of its last token; -1: no way yet
  };

  void Offer(double score, TokenId id, size_t begin, Best* best) const;
  void AppendUnknown(std::string_view text, std::vector<TokenId>* ids) const;

  UnigramOptions options_;
  ByteTrie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::array<TokenId, 256> byte_ids_ = {};
};

}  // namespace tandem
