#pragma once

// Byte-pair encoding of one piece: starts from single bytes (or characters) and merges the adjacent
// pair of lowest rank, leftmost first, until no pair has a rank.
// Thread: Encode is const and safe on any thread. Ownership: owns its tables.
// Create fails with InvalidArgument when a merge names a token that the vocabulary lacks.
// Cost: linear in the piece; a piece that is itself one token costs one look-up.

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/token_model.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

struct BpeOptions {
  bool byte_level = true;  // symbols are bytes; else characters
  bool ignore_merges =
      false;  // a piece in the vocabulary is one token, whether or not merges produce it
  bool byte_fallback = false;  // a character without a token becomes its bytes' tokens <0xNN>
  bool fuse_unknown = false;   // neighbouring unknown symbols become one token
  std::optional<TokenId> unknown_id;  // nullopt: unknown symbols vanish
  std::string continuing_prefix;      // spells characters that are not a piece's first
  std::string end_suffix;             // spells a piece's last character
};

class Bpe : public TokenModel {
 public:
  using Merge = std::pair<std::string, std::string>;

  Bpe() = default;  // encodes everything to nothing

  // vocabulary and merges hold raw bytes when byte_level. A merge's rank is its position.
  static StatusOr<Bpe> Create(Vocabulary vocabulary, const std::vector<Merge>& merges,
                              BpeOptions options);

  // Any two neighbours that spell a token with a rank merge, the lowest rank first. ranks: by id;
  // kNoRank: nothing merges into the token.
  static Bpe FromRanks(Vocabulary vocabulary, const std::vector<uint32_t>& ranks,
                       BpeOptions options);
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // Appends the ids of one piece. REQUIRES well-formed UTF-8 unless byte_level.
  Status Encode(std::string_view piece, std::vector<TokenId>* ids) const override;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merged {
    uint32_t rank = kNoRank;
    TokenId id = -1;
  };
  // Whether merging the bytes of a token gives that token back; computed at its first use.
  enum class Whole : uint8_t { kUnknown, kYes, kNo };

  void FinishTables();
  Merged Find(TokenId left, TokenId right) const;
  bool IsReachable(TokenId id, std::string_view piece) const;
  std::string WithAffixes(std::string_view symbol, bool continues, bool ends) const;
  void AppendSymbols(std::string_view piece, std::vector<TokenId>* symbols) const;
  void MergeShort(TokenId* symbols, size_t count, std::vector<TokenId>* ids) const;
  struct Window;
  void MergeWindow(std::span<const TokenId> symbols, Window* window) const;
  void MergeLong(std::span<const TokenId> symbols, std::vector<TokenId>* ids) const;
  void EncodeByMerging(std::string_view piece, std::vector<TokenId>* ids) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  bool has_affixes_ = false;
  size_t window_symbols_ = 0;
  absl::flat_hash_map<uint64_t, Merged> merges_;  // (left << 32 | right)
  std::array<TokenId, 256> byte_ids_ = {};        // the byte's symbol, or of <0xNN>; -1: none
  mutable std::unique_ptr<std::atomic<Whole>[]> whole_;
};

}  // namespace tandem
