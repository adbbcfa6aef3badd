#include "frontend/text/ranked_tokens.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include <nlohmann/json.hpp>

#include "frontend/text/bpe.h"
#include "frontend/text/byte_level.h"

namespace tandem {
namespace {

using nlohmann::json;

Status CheckBytes(const TokenList& tokens) {
  std::bitset<256> found;
  for (const auto& [id, text] : tokens) {
    if (text.size() == 1) found.set(static_cast<unsigned char>(text[0]));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!found[byte]) return InvalidArgumentError("no token for byte " + std::to_string(byte));
  }
  return OkStatus();
}

std::unique_ptr<TokenModel> NewBpe(const TokenList& tokens) {
  TokenId end = 0;
  for (const auto& [id, text] : tokens) end = std::max(end, id + 1);
  std::vector<uint32_t> ranks(static_cast<size_t>(end), Bpe::kNoRank);
  for (const auto& [id, text] : tokens) {
    ranks[static_cast<size_t>(id)] = static_cast<uint32_t>(id);
  }
  BpeOptions options;
  options.ignore_merges = true;
  return std::make_unique<Bpe>(Bpe::FromRanks(Vocabulary(tokens), ranks, std::move(options)));
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> MakeRankedTokenizer(RankedTokens ranked) {
  RETURN_IF_ERROR(CheckBytes(ranked.tokens));
  auto file = std::make_unique<TokenizerFile>();
  if (!ranked.normalizer.empty()) {
    const json normalizer = {{"type", ranked.normalizer}};
    ASSIGN_OR_RETURN(file->normalizer, Normalizer::Create(normalizer));
  }
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", ranked.pattern}}}, {"behavior", "Isolated"}};
  const json to_bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json steps = {{"type", "Sequence"}, {"pretokenizers", json::array({split, to_bytes})}};
  ASSIGN_OR_RETURN(file->pretokenizer, Pretokenizer::Create(steps, ByteLevelPieces::kBytes));
  const json decoder = {{"type", "ByteLevel"}};
  ASSIGN_OR_RETURN(file->decoder, TokenDecoder::Create(decoder));
  file->model = NewBpe(ranked.tokens);
  TokenList spelled;
  for (const auto& [id, text] : ranked.tokens) spelled.emplace_back(id, BytesToAlphabet(text));
  file->added_tokens = std::move(ranked.added_tokens);
  RETURN_IF_ERROR(FillVocabularies(spelled, file.get()));
  return file;
}

}  // namespace tandem
