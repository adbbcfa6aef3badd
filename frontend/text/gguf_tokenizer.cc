#include "frontend/text/gguf_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/log.h"
#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/bpe.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/sentencepiece_model.h"
#include "frontend/text/split_patterns.h"
#include "gguf/end_tokens.h"
#include "gguf/known_names.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxVocabSize = 1 << 24;

// ---- Ways to cut text, by tokenizer.ggml.pre ----

constexpr char kGpt2Split[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
constexpr char kTekkenSplit[] =
    R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER R"(+|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER
    R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#define CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
constexpr char kGpt4oSplit[] =
    R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" CONTRACTION R"(|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER
    "*" CONTRACTION R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef UPPER
#undef LOWER
#undef CONTRACTION
// Qwen's with marks that stay with their letters.
constexpr char kQwen35Split[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDeepseekSplit[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char kDigit[] = R"(\p{N})";
// llama.cpp's where a file names none, or "default".
constexpr char kDefaultPunctuation[] = R"([\p{P}\$\+<=>\^~\|]+)";
// DeepSeek's before V3. Its first model lists the letters that have a case.
constexpr char kDeepseekCased[] = R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)";
constexpr char kDeepseekPunctuation[] =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr char kDeepseekHan[] = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr char kSeedSplit[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                              R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct SplitRow {
  std::vector<std::string_view> names;
  std::vector<const char*> patterns;  // applied one after the other
  bool ignore_merges = false;         // a word that is a token is that token
  bool add_bos = false;               // where the file does not say
};

const std::vector<SplitRow>& Splits() {
  static const std::vector<SplitRow> rows = {
      {.names = {"default"},
       .patterns = {kDefaultPunctuation, kGpt2Split, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"gpt-2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "gigachat",
                 "granite-docling", "exaone4", "jais", "trillion"},
       .patterns = {kGpt2Split}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "pixtral",
                 "midm-2.0"},
       .patterns = {kLlama3Split},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5"}, .patterns = {kLlama3Split}},
      {.names = {"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan", "solar-open"},
       .patterns = {kQwenSplit}},
      {.names = {"qwen35"}, .patterns = {kQwen35Split}},
      {.names = {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
       .patterns = {kDigit, kGpt2Split}},
      {.names = {"tekken"}, .patterns = {kTekkenSplit}, .ignore_merges = true, .add_bos = true},
      {.names = {"gpt-4o", "llama4", "minimax-m2", "kanana2"}, .patterns = {kGpt4oSplit}},
      {.names = {"deepseek-llm"},
       .patterns = {"[\r\n]", kDeepseekCased, kDeepseekPunctuation, R"(\s+$)", kDeepseekHan,
                    R"(\p{N}+)"}},
      {.names = {"deepseek-coder"},
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekHan, kDigit}},
      {.names = {"kimi-k2"}, .patterns = {kKimiSplit}},
      {.names = {"seed-coder"}, .patterns = {kSeedSplit}},
      {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       .patterns = {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)", kDeepseekSplit}},
  };
  return rows;
}

StatusOr<const SplitRow*> FindSplit(std::string_view name) {
  std::string known;
  for (const SplitRow& row : Splits()) {
    for (const std::string_view each : row.names) {
      if (each == name) return &row;
      known += (known.empty() ? "" : ", ") + std::string(each);
    }
  }
  std::string shown;
  AppendLossyUtf8(name, &shown);
  return UnimplementedError("tokenizer.ggml.pre \"" + shown + "\" is not supported; supported: " +
                            known + "; name the tokenizer's folder by --tokenizer");
}

// ---- Tokens ----

// Types have SentencePiece's numbers.
StatusOr<std::vector<SentencePiece>> ReadPieces(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const auto scores, metadata.Numbers("tokenizer.ggml.scores"));
  ASSIGN_OR_RETURN(const auto types, metadata.Integers("tokenizer.ggml.token_type"));
  if (tokens.empty() || tokens.size() > kMaxVocabSize) {
    return InvalidArgumentError("tokenizer.ggml.tokens must be 1 to " +
                                std::to_string(kMaxVocabSize) + " tokens");
  }
  const auto fits = [&](size_t size) { return size == 0 || size == tokens.size(); };
  if (!fits(scores.size()) || !fits(types.size())) {
    return InvalidArgumentError(
        "tokenizer.ggml.scores and token_type must have a value for each of the " +
        std::to_string(tokens.size()) + " tokens");
  }
  std::vector<SentencePiece> pieces(tokens.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (FindInvalidUtf8(tokens[id]) != std::string_view::npos) {
      return InvalidArgumentError("token " + std::to_string(id) + " is not UTF-8");
    }
    pieces[id].text = tokens[id];
    if (!scores.empty()) pieces[id].score = scores[id];
    if (!types.empty()) pieces[id].type = static_cast<uint64_t>(types[id]);
  }
  return pieces;
}

bool IsAddedPiece(const SentencePiece& piece) {
  return piece.type == SentencePiece::kControl || piece.type == SentencePiece::kUnknown ||
         piece.type == SentencePiece::kUserDefined;
}

std::vector<AddedToken> AddedTokensOf(const std::vector<SentencePiece>& pieces) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!IsAddedPiece(pieces[id])) continue;
    tokens.push_back({.id = static_cast<TokenId>(id),
                      .content = pieces[id].text,
                      .normalized = false,
                      .special = pieces[id].type != SentencePiece::kUserDefined});
  }
  return tokens;
}

struct SpecialIds {
  std::optional<TokenId> bos, eos, cls, separator;
};

StatusOr<SpecialIds> ReadSpecialTokens(const GgufMetadata& metadata,
                                       const std::vector<SentencePiece>& pieces,
                                       TokenizerConfig* config) {
  struct Row {
    std::string_view key;
    const char* hf;
    std::optional<TokenId> SpecialIds::*id;
  };
  static constexpr Row kRows[] = {
      {"bos", "bos_token", &SpecialIds::bos}, {"eos", "eos_token", &SpecialIds::eos},
      {"cls", "cls_token", &SpecialIds::cls}, {"seperator", "sep_token", &SpecialIds::separator},
      {"unknown", "unk_token", nullptr},      {"padding", "pad_token", nullptr}};
  SpecialIds ids;
  for (const Row& row : kRows) {
    const auto id = GgufTokenId(metadata, row.key, pieces.size());
    if (!id.ok()) {
      // Nothing is padded here, and many files name a token that their vocabulary has no more.
      if (row.key != "padding") return id.status();
      LOG_WARNING << id.status().message() << "; it has no effect";
      continue;
    }
    if (!*id) continue;
    config->special_tokens[row.hf] = pieces[static_cast<size_t>(**id)].text;
    if (row.id != nullptr) ids.*row.id = *id;
  }
  return ids;
}

// ---- Kinds ----

struct GgufVocabulary {
  const GgufMetadata& metadata;
  std::vector<SentencePiece> pieces;
  SpecialIds ids;
};

using MakeKind = StatusOr<std::unique_ptr<TokenizerFile>> (*)(GgufVocabulary vocabulary,
                                                              TokenizerConfig* config);

Status AddEnds(const GgufVocabulary& vocabulary, bool add_bos, bool add_eos,
               std::optional<TokenId> first, std::optional<TokenId> last, TokenizerFile* file) {
  ASSIGN_OR_RETURN(add_bos, vocabulary.metadata.Bool("tokenizer.ggml.add_bos_token", add_bos));
  ASSIGN_OR_RETURN(add_eos, vocabulary.metadata.Bool("tokenizer.ggml.add_eos_token", add_eos));
  if (add_bos && first) file->prefix_ids.push_back(*first);
  if (add_eos && last) file->suffix_ids.push_back(*last);
  return OkStatus();
}

// Without them every text would become single bytes.
StatusOr<std::vector<std::string_view>> MergeTexts(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  if (metadata.Has(kKey)) return metadata.Strings(kKey);
  return InvalidArgumentError("key " + std::string(kKey) +
                              " is missing; name the tokenizer's folder by --tokenizer");
}

StatusOr<std::vector<Bpe::Merge>> ReadMerges(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto texts, MergeTexts(metadata));
  std::vector<Bpe::Merge> merges;
  for (const std::string_view text : texts) {
    const size_t blank = text.find(' ', 1);
    std::optional<std::string> left, right;
    if (blank != std::string_view::npos && FindInvalidUtf8(text) == std::string_view::npos) {
      left = AlphabetToBytes(text.substr(0, blank));
      right = AlphabetToBytes(text.substr(blank + 1));
    }
    if (!left || !right) {
      return InvalidArgumentError("tokenizer.ggml.merges: entry " + std::to_string(merges.size()) +
                                  " must be two tokens in the byte alphabet");
    }
    merges.emplace_back(*std::move(left), *std::move(right));
  }
  return merges;
}

StatusOr<Pretokenizer> MakePretokenizer(const SplitRow& split) {
  json steps = json::array();
  for (const char* pattern : split.patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  const json sequence = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return Pretokenizer::Create(sequence, ByteLevelPieces::kBytes);
}

StatusOr<std::unique_ptr<TokenizerFile>> MakeByteLevelBpe(GgufVocabulary vocabulary,
                                                          TokenizerConfig* config) {
  if (!vocabulary.metadata.Has("tokenizer.ggml.pre")) {
    LOG_WARNING
        << "the file has no tokenizer.ggml.pre: text is cut as llama.cpp does by default, which "
           "may not be the model's way; a newer file has the key";
  }
  ASSIGN_OR_RETURN(const std::string_view pre,
                   vocabulary.metadata.String("tokenizer.ggml.pre", "default"));
  ASSIGN_OR_RETURN(const SplitRow* split, FindSplit(pre));
  TokenList symbols, spelled;
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const SentencePiece& piece = vocabulary.pieces[i];
    const auto id = static_cast<TokenId>(i);
    spelled.emplace_back(id, piece.text);
    if (IsAddedPiece(piece)) continue;
    if (auto bytes = AlphabetToBytes(piece.text)) symbols.emplace_back(id, *std::move(bytes));
  }
  ASSIGN_OR_RETURN(const auto merges, ReadMerges(vocabulary.metadata));
  BpeOptions options;
  options.ignore_merges = split->ignore_merges;
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(Vocabulary(symbols), merges, std::move(options)));
  auto file = std::make_unique<TokenizerFile>();
  file->model = std::make_unique<Bpe>(std::move(bpe));
  ASSIGN_OR_RETURN(file->pretokenizer, MakePretokenizer(*split));
  const json decoder = {{"type", "ByteLevel"}};
  ASSIGN_OR_RETURN(file->decoder, TokenDecoder::Create(decoder));
  file->added_tokens = config->added_tokens;
  RETURN_IF_ERROR(AddEnds(vocabulary, split->add_bos, false, vocabulary.ids.bos, vocabulary.ids.eos,
                          file.get()));
  RETURN_IF_ERROR(FillVocabularies(spelled, file.get()));
  return file;
}

// A space in a merge is between its tokens, because blanks of tokens are ▁.
StatusOr<std::vector<Bpe::Merge>> ReadCharacterMerges(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto texts, MergeTexts(metadata));
  std::vector<Bpe::Merge> merges;
  for (const std::string_view text : texts) {
    const size_t blank = text.find(' ', 1);
    if (blank == std::string_view::npos || FindInvalidUtf8(text) != std::string_view::npos) {
      return InvalidArgumentError("tokenizer.ggml.merges: entry " + std::to_string(merges.size()) +
                                  " must be two tokens in UTF-8");
    }
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

// Gemma 4's: characters are merged, across words too. A run of newlines that is a token is found
// before that, as an added token is: no merge need lead to it.
StatusOr<std::unique_ptr<TokenizerFile>> MakeCharacterBpe(GgufVocabulary vocabulary,
                                                          TokenizerConfig* config) {
  constexpr const char* kBlank = "\u2581";
  TokenList tokens;
  BpeOptions options;
  options.byte_level = false;
  options.byte_fallback = options.fuse_unknown = true;
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& text = vocabulary.pieces[i].text;
    if (vocabulary.pieces[i].type == SentencePiece::kUnknown) options.unknown_id = id;
    if (!text.empty() && text.find_first_not_of('\n') == std::string::npos) {
      config->added_tokens.push_back(
          {.id = id, .content = text, .normalized = false, .special = false});
    }
    tokens.emplace_back(id, text);
  }
  ASSIGN_OR_RETURN(const auto merges, ReadCharacterMerges(vocabulary.metadata));
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(Vocabulary(tokens), merges, std::move(options)));
  auto file = std::make_unique<TokenizerFile>();
  file->model = std::make_unique<Bpe>(std::move(bpe));
  ASSIGN_OR_RETURN(file->normalizer,
                   Normalizer::Create(
                       {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlank}}));
  const json decoders =
      json::array({{{"type", "Replace"}, {"pattern", {{"String", kBlank}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}});
  ASSIGN_OR_RETURN(file->decoder,
                   TokenDecoder::Create({{"type", "Sequence"}, {"decoders", decoders}}));
  file->added_tokens = config->added_tokens;
  RETURN_IF_ERROR(
      AddEnds(vocabulary, true, false, vocabulary.ids.bos, vocabulary.ids.eos, file.get()));
  RETURN_IF_ERROR(FillVocabularies(tokens, file.get()));
  return file;
}

StatusOr<std::unique_ptr<TokenizerFile>> MakeSentencePiece(GgufVocabulary vocabulary,
                                                           SentencePieceModel::Kind kind,
                                                           TokenizerConfig* config) {
  const GgufMetadata& metadata = vocabulary.metadata;
  const bool is_unigram = kind == SentencePieceModel::kUnigram;
  SentencePieceModel model;
  model.model_type = kind;
  model.pieces = std::move(vocabulary.pieces);
  model.byte_fallback =
      std::any_of(model.pieces.begin(), model.pieces.end(),
                  [](const SentencePiece& piece) { return piece.type == SentencePiece::kByte; });
  ASSIGN_OR_RETURN(model.rules.add_dummy_prefix,
                   metadata.Bool("tokenizer.ggml.add_space_prefix", true));
  ASSIGN_OR_RETURN(model.rules.remove_extra_blanks,
                   metadata.Bool("tokenizer.ggml.remove_extra_whitespaces", is_unigram));
  ASSIGN_OR_RETURN(const std::string_view map,
                   metadata.Bytes("tokenizer.ggml.precompiled_charsmap"));
  ASSIGN_OR_RETURN(model.rules.map, Charsmap::Create(map));
  config->add_bos_token = config->add_eos_token = false;  // by their ids, below
  ASSIGN_OR_RETURN(auto file, MakeSentencePieceTokenizer(std::move(model), *config));
  RETURN_IF_ERROR(AddEnds(vocabulary, !is_unigram, is_unigram, vocabulary.ids.bos,
                          vocabulary.ids.eos, file.get()));
  return file;
}

StatusOr<std::unique_ptr<TokenizerFile>> MakeSentencePieceBpe(GgufVocabulary vocabulary,
                                                              TokenizerConfig* config) {
  return MakeSentencePiece(std::move(vocabulary), SentencePieceModel::kBpe, config);
}

StatusOr<std::unique_ptr<TokenizerFile>> MakeUnigram(GgufVocabulary vocabulary,
                                                     TokenizerConfig* config) {
  return MakeSentencePiece(std::move(vocabulary), SentencePieceModel::kUnigram, config);
}

// The file marks the tokens that begin a word, where WordPiece's own vocabulary marks the others.
StatusOr<std::unique_ptr<TokenizerFile>> MakeWordPiece(GgufVocabulary vocabulary,
                                                       TokenizerConfig* config) {
  constexpr std::string_view kWordBegin = "\u2581";
  json words = json::object();
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& text = vocabulary.pieces[id].text;
    const bool is_word = text.starts_with(kWordBegin);
    const std::string word = IsAddedPiece(vocabulary.pieces[id]) ? text
                             : is_word                           ? text.substr(kWordBegin.size())
                                                                 : "##" + text;
    words[word] = id;
  }
  const auto unknown = config->special_tokens.find("unk_token");
  const json root = {
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", true},
        {"strip_accents", nullptr},
        {"lowercase", true}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"vocab", words},
        {"unk_token", unknown == config->special_tokens.end() ? "[UNK]" : unknown->second},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100}}}};
  ASSIGN_OR_RETURN(auto file, ParseTokenizerFile(root.dump()));
  file->added_tokens = config->added_tokens;
  const auto first = vocabulary.ids.cls ? vocabulary.ids.cls : vocabulary.ids.bos;
  RETURN_IF_ERROR(AddEnds(vocabulary, true, true, first, vocabulary.ids.separator, file.get()));
  TokenList spelled;
  for (const auto& [word, id] : words.items()) spelled.emplace_back(id.get<TokenId>(), word);
  RETURN_IF_ERROR(FillVocabularies(spelled, file.get()));
  return file;
}

struct KindRow {
  std::string_view name;
  MakeKind make;
};
constexpr KindRow kKinds[] = {{"bert", MakeWordPiece},
                              {"gemma4", MakeCharacterBpe},
                              {"gpt2", MakeByteLevelBpe},
                              {"llama", MakeSentencePieceBpe},
                              {"t5", MakeUnigram}};

// "tokenizer.chat_template" is the default, those with another name have it at the end of the key.
Status ReadChatTemplates(const GgufMetadata& metadata, TokenizerConfig* config) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.values()) {
    const bool is_named = key.starts_with(std::string(kKey) + ".");
    if (key != kKey && !is_named) continue;
    ASSIGN_OR_RETURN(const std::string_view source, metadata.String(key, ""));
    if (FindInvalidUtf8(source) != std::string_view::npos) {
      return InvalidArgumentError(key + " is not UTF-8");
    }
    config->chat_templates[is_named ? key.substr(kKey.size() + 1) : "default"] = source;
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<TokenizerFile>> ReadGgufTokenizer(const GgufMetadata& metadata,
                                                           TokenizerConfig* config) {
  ASSIGN_OR_RETURN(const std::string_view name, metadata.String("tokenizer.ggml.model", ""));
  ASSIGN_OR_RETURN(const KindRow* kind,
                   FindKnownName(std::span<const KindRow>(kKinds), "tokenizer.ggml.model", name));
  ASSIGN_OR_RETURN(std::vector<SentencePiece> pieces, ReadPieces(metadata));
  ASSIGN_OR_RETURN(const SpecialIds ids, ReadSpecialTokens(metadata, pieces, config));
  config->added_tokens = AddedTokensOf(pieces);
  RETURN_IF_ERROR(ReadChatTemplates(metadata, config));
  return kind->make({.metadata = metadata, .pieces = std::move(pieces), .ids = ids}, config);
}

}  // namespace tandem
