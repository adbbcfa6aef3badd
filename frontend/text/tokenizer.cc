#include "frontend/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/strings.h"
#include "frontend/text/encoded_text_cache.h"
#include "frontend/text/gguf_tokenizer.h"
#include "frontend/text/tokenizer_file.h"
#include "frontend/text/tokenizer_folder.h"
#include "gguf/gguf_file.h"

namespace tandem {

struct Tokenizer::Parts {
  std::unique_ptr<TokenizerFile> file;
  TokenizerConfig config;
  AddedTokenFinder raw_finder;         // looks at the text as it came
  AddedTokenFinder normalized_finder;  // looks at normalized text
  std::vector<uint8_t> flags;          // by id: kAdded, kSpecial
  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;

  static constexpr uint8_t kAdded = 1;
  static constexpr uint8_t kSpecial = 2;

  bool Has(TokenId id, uint8_t flag) const {
    return id >= 0 && static_cast<size_t>(id) < flags.size() && (flags[id] & flag) != 0;
  }
  // at_start: the part begins the text.
  Status EncodePart(std::string_view text, bool at_start, Pieces* pieces,
                    std::vector<TokenId>* ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& model_folder) {
  std::error_code error;
  if (!std::filesystem::exists(model_folder + "/tokenizer.json", error)) {
    ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(model_folder));
    if (!gguf.empty()) return LoadGguf(gguf);
  }
  ASSIGN_OR_RETURN(TokenizerParts parts, ReadTokenizerFolder(model_folder));
  return Build(std::move(parts.file), std::move(parts.config));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::LoadGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, GgufFile::Open(path));
  TokenizerConfig config;
  auto file = ReadGgufTokenizer(gguf->metadata(), &config);
  if (!file.ok()) return file.status().WithContext(path);
  return Build(*std::move(file), std::move(config));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Parse(std::string_view tokenizer_json,
                                                            std::string_view config_json) {
  auto file = ParseTokenizerFile(tokenizer_json);
  if (!file.ok()) return file.status().WithContext("tokenizer.json");
  auto config = ParseTokenizerConfig(config_json);
  if (!config.ok()) return config.status().WithContext("tokenizer_config.json");
  MarkSpecialTokens(*config, file->get());
  return Build(*std::move(file), *std::move(config));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Build(std::unique_ptr<TokenizerFile> file,
                                                            TokenizerConfig config) {
  auto parts = std::make_unique<Parts>();
  parts->file = std::move(file);
  parts->config = std::move(config);
  parts->flags.resize(parts->file->spelled.size());
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized = parts->file->symbols;
  for (const AddedToken& token : parts->file->added_tokens) {
    parts->flags[token.id] |= Parts::kAdded | (token.special ? Parts::kSpecial : 0);
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    normalized.push_back(token);
    ASSIGN_OR_RETURN(normalized.back().content, parts->file->normalizer.Apply(token.content));
  }
  for (const TokenId id : parts->file->special_ids) parts->flags[id] |= Parts::kSpecial;
  parts->raw_finder = AddedTokenFinder(std::move(raw));
  parts->normalized_finder = AddedTokenFinder(std::move(normalized));
  const auto id_of = [&](const char* name) -> std::optional<TokenId> {
    const auto it = parts->config.special_tokens.find(name);
    if (it == parts->config.special_tokens.end()) return std::nullopt;
    return parts->file->spelled.Find(it->second);
  };
  parts->bos_id = id_of("bos_token");
  parts->eos_id = id_of("eos_token");
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Status Tokenizer::Parts::EncodePart(std::string_view text, bool at_start, Pieces* pieces,
                                    std::vector<TokenId>* ids) const {
  std::string normal;
  if (!file->normalizer.empty()) {
    const bool inner = !at_start && file->inner_normalizer.has_value();
    ASSIGN_OR_RETURN(normal, (inner ? *file->inner_normalizer : file->normalizer).Apply(text));
    text = normal;
  }
  std::vector<AddedTokenFinder::Part> parts;
  normalized_finder.Split(text, &parts);
  for (const auto& part : parts) {
    if (part.id >= 0) {
      ids->push_back(part.id);
      continue;
    }
    const bool first = at_start && part.text.data() == text.data();
    RETURN_IF_ERROR(file->pretokenizer.Split(part.text, first, pieces));
    for (const std::string_view piece : pieces->pieces) {
      RETURN_IF_ERROR(file->model->Encode(piece, ids));
    }
  }
  return OkStatus();
}

StatusOr<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, bool add_special_tokens,
                                                 EncodedTextCache* cache) const {
  if (const size_t pos = FindInvalidUtf8(text); pos != std::string_view::npos) {
    return InvalidArgumentError("text is not UTF-8 at byte " + std::to_string(pos));
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special_tokens) ids = parts_->file->prefix_ids;
  std::vector<AddedTokenFinder::Part> parts;
  parts_->raw_finder.Split(text, &parts);
  Pieces pieces;
  for (const auto& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      const bool at_start = part.text.data() == text.data();
      if (cache != nullptr && cache->Find(part.text, at_start, &ids)) continue;
      const size_t num_before = ids.size();
      RETURN_IF_ERROR(parts_->EncodePart(part.text, at_start, &pieces, &ids));
      if (cache != nullptr) {
        cache->Insert(part.text, at_start, std::span(ids).subspan(num_before));
      }
    }
  }
  if (add_special_tokens) {
    const auto& suffix = parts_->file->suffix_ids;
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  TokenStream stream = StartDecoding(ByteRuns::kWhole);
  for (const TokenId id : ids) {
    if (!Contains(id) || (skip_special_tokens && IsSpecial(id))) continue;
    stream.Append(Prepared(id), &text);
  }
  stream.End(&text);
  return text;
}

TokenStream Tokenizer::StartDecoding(ByteRuns byte_runs) const {
  return parts_->file->decoder.Start(byte_runs);
}

std::string_view Tokenizer::Prepared(TokenId id) const {
  return decodes_bytes() ? TokenBytes(id) : parts_->file->prepared.Text(id);
}

bool Tokenizer::Contains(TokenId id) const { return parts_->file->spelled.Contains(id); }
bool Tokenizer::decodes_bytes() const { return parts_->file->decoder.byte_level(); }

std::string_view Tokenizer::TokenBytes(TokenId id) const { return parts_->file->bytes.Text(id); }

std::optional<std::string_view> Tokenizer::IdToToken(TokenId id) const {
  if (!Contains(id)) return std::nullopt;
  return parts_->file->spelled.Text(id);
}

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  return parts_->file->spelled.Find(token);
}

const PairTemplate& Tokenizer::pair() const { return parts_->file->pair; }

const OffsetTrim* Tokenizer::offset_trim() const {
  const auto& trim = parts_->file->offset_trim;
  return trim ? &*trim : nullptr;
}

bool Tokenizer::IsSpecial(TokenId id) const { return parts_->Has(id, Parts::kSpecial); }
bool Tokenizer::IsAdded(TokenId id) const { return parts_->Has(id, Parts::kAdded); }
TokenId Tokenizer::vocab_size() const { return parts_->file->spelled.size(); }
std::optional<TokenId> Tokenizer::bos_id() const { return parts_->bos_id; }
std::optional<TokenId> Tokenizer::eos_id() const { return parts_->eos_id; }
const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return parts_->config.special_tokens;
}
const std::map<std::string, std::string>& Tokenizer::chat_templates() const {
  return parts_->config.chat_templates;
}

}  // namespace tandem
