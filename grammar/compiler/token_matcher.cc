#include "grammar/compiler/token_matcher.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "common/strings.h"
#include "common/token_mask.h"
#include "grammar/compiler/spec_rewrites.h"
#include "grammar/compiler/utf8_so_far.h"
#include "grammar/schema/json_schema_check.h"
#include "grammar/schema/schema_fault.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// What xgrammar writes to std::cerr while it lives: it leaves out parts of a spec with a warning.
class CapturedWarnings {
 public:
  CapturedWarnings() : before_(std::cerr.rdbuf(text_.rdbuf())) {}
  ~CapturedWarnings() { std::cerr.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

// Everything but that `oneOf` counts as `anyOf`, as it does everywhere else that models are held to
// schemas.
std::string WithoutHarmless(const std::string& warnings) {
  std::string rest;
  for (const std::string_view line : Split(warnings, '\n')) {
    if (line.find("falling back to anyOf semantics") == line.npos) rest += line;
  }
  return rest;
}

StatusOr<xgrammar::CompiledGrammar> CompileJsonSchema(const GrammarSpec& spec,
                                                      xgrammar::GrammarCompiler& compiler) {
  Json parsed = Json::parse(spec.text, nullptr, /*allow_exceptions=*/false);
  RETURN_IF_ERROR(CheckJsonSchema(parsed));
  const std::string schema = RewriteSchema(&parsed) ? parsed.dump() : spec.text;
  switch (spec.blanks) {
    case JsonBlanks::kAny:
      return compiler.CompileJSONSchema(schema);
    case JsonBlanks::kPython:
      return compiler.CompileJSONSchema(schema, /*any_whitespace=*/false);
    case JsonBlanks::kOne:
      return compiler.CompileJSONSchema(schema, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                        /*strict_mode=*/true, /*max_whitespace_cnt=*/1);
    case JsonBlanks::kNone:
      break;
  }
  return compiler.CompileJSONSchema(schema, /*any_whitespace=*/false, std::nullopt,
                                    std::pair<std::string, std::string>(",", ":"));
}

// A tag reads EBNF alone. Whether a grammar in it changed.
bool RewriteGrammarsOfTag(Json* part) {
  bool is_changed = false;
  const auto grammar = part->is_object() ? part->find("grammar") : part->end();
  if (grammar != part->end() && grammar->is_string()) {
    const auto& text = grammar->get_ref<const std::string&>();
    if (!text.empty() && LooksLikeLark(text)) {
      *grammar = xgrammar::Grammar::FromLark(text).ToString();
      is_changed = true;
    }
  }
  for (auto it = part->begin(); part->is_structured() && it != part->end(); ++it) {
    const bool is_schema = part->is_object() && it.key() == "json_schema";
    if (!is_schema) is_changed |= RewriteGrammarsOfTag(&*it);
  }
  return is_changed;
}

StatusOr<xgrammar::CompiledGrammar> CompileTag(const GrammarSpec& spec,
                                               xgrammar::GrammarCompiler& compiler) {
  Json tag = Json::parse(spec.text, nullptr, /*allow_exceptions=*/false);
  ASSIGN_OR_RETURN(bool is_changed, UpdateStructuralTag(spec.blanks, &tag));
  RETURN_IF_ERROR(CheckSchemasOfTag(tag));
  is_changed |= RewriteSchemasOfTag(&tag);
  is_changed |= RewriteGrammarsOfTag(&tag);
  return compiler.CompileStructuralTag(is_changed ? tag.dump() : spec.text);
}

StatusOr<xgrammar::CompiledGrammar> Compile(const GrammarSpec& spec,
                                            xgrammar::GrammarCompiler& compiler) {
  switch (spec.kind) {
    case GrammarKind::kJsonSchema:
      return CompileJsonSchema(spec, compiler);
    case GrammarKind::kRegex:
      return compiler.CompileRegex(WithoutLeadingCarets(spec.text));
    case GrammarKind::kGrammar:
      return LooksLikeLark(spec.text) ? compiler.CompileLark(spec.text)
                                      : compiler.CompileGrammar(spec.text);
    case GrammarKind::kStructuralTag:
      break;
  }
  return CompileTag(spec, compiler);
}

std::string_view NameOf(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "the JSON schema";
    case GrammarKind::kRegex:
      return "the regular expression";
    case GrammarKind::kGrammar:
      return "the grammar";
    case GrammarKind::kStructuralTag:
      break;
  }
  return "the structural tag";
}

// What `make` returns; what the library throws, or leaves out with a warning, is a Status.
template <class Make>
auto Guarded(std::string_view name, const Make& make) -> decltype(make()) {
  try {
    CapturedWarnings warnings;
    auto grammar = make();
    if (!grammar.ok()) return grammar;
    if (const std::string text = WithoutHarmless(warnings.text()); !text.empty()) {
      return InvalidArgumentError(std::string(name) + " cannot be enforced: " + PlainMessage(text));
    }
    return grammar;
  } catch (const std::bad_alloc&) {
    return InvalidArgumentError(std::string(name) + " needs too much memory to compile");
  } catch (const std::exception& error) {
    return InvalidArgumentError(std::string(name) + " is not valid: " + PlainMessage(error.what()));
  }
}

// The first schema of a structural tag that is wrong by itself; nullopt: none.
StatusOr<std::optional<SchemaFault>> FindFault(const std::string& tag_json) {
  const Json tag = Json::parse(tag_json, nullptr, /*allow_exceptions=*/false);
  const auto schemas = SchemasOfTag(tag);
  for (size_t i = 0; i < schemas.size(); ++i) {
    const Json& in_tag = *schemas[i];
    Json schema =
        in_tag.is_string() ? Json::parse(in_tag.get<std::string>(), nullptr, false) : in_tag;
    const auto alone =
        Guarded(NameOf(GrammarKind::kJsonSchema), [&]() -> StatusOr<xgrammar::Grammar> {
          RETURN_IF_ERROR(CheckJsonSchema(schema));
          RewriteSchema(&schema);
          return xgrammar::Grammar::FromJSONSchema(schema.dump());
        });
    if (!alone.ok()) return std::optional(SchemaFault{i, alone.status().message()});
  }
  return std::optional<SchemaFault>();
}

// The one token that a mask allows; nullopt: none, or several.
std::optional<TokenId> OnlyToken(std::span<const int32_t> mask) {
  std::optional<TokenId> only;
  for (size_t i = 0; i < mask.size(); ++i) {
    const auto word = static_cast<uint32_t>(mask[i]);
    if (word == 0) continue;
    if (only || !std::has_single_bit(word)) return std::nullopt;
    only = static_cast<TokenId>(32 * i) + std::countr_zero(word);
  }
  return only;
}

void Refuse(TokenId id, std::span<int32_t> words) {
  words[static_cast<size_t>(id) / 32] &= ~static_cast<int32_t>(uint32_t{1} << (id % 32));
}

}  // namespace

StatusOr<xgrammar::CompiledGrammar> CompileGrammar(const GrammarSpec& spec,
                                                   GrammarVocabulary* vocabulary) {
  auto grammar = Guarded(NameOf(spec.kind), [&] { return Compile(spec, vocabulary->compiler()); });
  if (grammar.ok() || spec.kind != GrammarKind::kStructuralTag) return grammar;
  const auto fault = Guarded(NameOf(spec.kind), [&] { return FindFault(spec.text); });
  if (!fault.ok() || !*fault) return grammar;
  return InvalidArgumentError(FaultMessage(**fault));
}

TokenMatcher::TokenMatcher(const xgrammar::CompiledGrammar& grammar,
                           const GrammarVocabulary* vocabulary)
    : vocabulary_(vocabulary),
      matcher_(grammar, std::nullopt, /*terminate_without_stop_token=*/!vocabulary->has_end()) {}

bool TokenMatcher::Accept(TokenId token) {
  if (matcher_.IsTerminated()) return true;
  if (!matcher_.AcceptToken(token)) return false;
  open_character_ += vocabulary_->text(token);
  open_character_ = OpenCharacter(open_character_);
  return true;
}

void TokenMatcher::FillMask(bool allows_special_tokens, std::span<int32_t> words) {
  if (matcher_.IsTerminated()) {
    std::ranges::fill(words, -1);
    return;
  }
  auto num_words = static_cast<int64_t>(words.size());
  DLTensor mask = {.data = words.data(),
                   .device = {kDLCPU, 0},
                   .ndim = 1,
                   .dtype = xgrammar::GetBitmaskDLType(),
                   .shape = &num_words,
                   .strides = nullptr,
                   .byte_offset = 0};
  matcher_.FillNextTokenBitmask(&mask);
  if (!open_character_.empty()) RefuseBrokenCharacters(words);
  if (allows_special_tokens) return;
  for (const TokenId id : vocabulary_->special_tokens()) Refuse(id, words);
}

size_t TokenMatcher::FindRun(bool allows_special_tokens, std::span<const int32_t> words,
                             std::span<TokenId> run) {
  std::optional<TokenId> only = OnlyToken(words);
  if (!only) return 0;
  const std::string open_character = open_character_;
  mask_.resize(words.size());
  size_t size = 0;
  int num_accepted = 0;
  while (only && size < run.size()) {
    run[size++] = *only;
    if (size == run.size() || !matcher_.AcceptToken(*only)) break;
    ++num_accepted;
    if (matcher_.IsTerminated()) break;
    open_character_ += vocabulary_->text(*only);
    open_character_ = OpenCharacter(open_character_);
    FillMask(allows_special_tokens, mask_);
    only = OnlyToken(mask_);
  }
  RollBack(allows_special_tokens, num_accepted, open_character);
  return size;
}

size_t TokenMatcher::FillMasksAfter(bool allows_special_tokens, std::span<const TokenId> drafts,
                                    const MaskRows& masks, size_t row) {
  const std::string open_character = open_character_;
  mask_.resize(masks.mask(row).size());
  size_t num_allowed = 0;
  int num_accepted = 0;
  for (const TokenId draft : drafts) {
    if (!IsAllowed(masks.mask(row + num_allowed), draft)) break;
    if (!matcher_.IsTerminated()) {
      if (!Accept(draft)) break;
      ++num_accepted;
    }
    FillMask(allows_special_tokens, masks.mask(row + ++num_allowed));
  }
  RollBack(allows_special_tokens, num_accepted, open_character);
  return num_allowed;
}

void TokenMatcher::RollBack(bool allows_special_tokens, int num_tokens,
                            std::string open_character) {
  if (num_tokens == 0) return;
  matcher_.Rollback(num_tokens);
  open_character_ = std::move(open_character);
  // To fill a mask also prepares the matcher for the token that follows it.
  FillMask(allows_special_tokens, mask_);
}

void TokenMatcher::RefuseBrokenCharacters(std::span<int32_t> words) const {
  for (const TokenId id : vocabulary_->continuing_tokens()) {
    if (!IsUtf8SoFar(open_character_ + vocabulary_->text(id))) Refuse(id, words);
  }
}

}  // namespace tandem
