#include "frontend/text/decoder.h"

#include <optional>

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

void ReplaceAll(const std::string& from, const std::string& to, std::string* text) {
  if (from.empty()) return;
  for (size_t at = text->find(from); at != std::string::npos;
       at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

// The byte that "<0x41>" stands for.
std::optional<char> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto bytes = HexDecode(token.substr(3, 2));
  if (!bytes.has_value()) return std::nullopt;
  return (*bytes)[0];
}

// A run of byte tokens is the text it spells, or one U+FFFD for each when it spells none.
std::vector<std::string> JoinBytes(std::vector<std::string> tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (FindInvalidUtf8(run) == std::string_view::npos) {
      out.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) out.emplace_back("\xEF\xBF\xBD");
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = FallbackByte(token); byte.has_value()) {
      run += *byte;
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  return out;
}

void StripEnds(const std::string& content, size_t start, size_t stop, std::string* text) {
  if (content.empty()) return;
  size_t begin = 0;
  for (; start > 0 && text->compare(begin, content.size(), content) == 0; --start) {
    begin += content.size();
  }
  size_t end = text->size();
  for (; stop > 0 && end >= begin + content.size() &&
         text->compare(end - content.size(), content.size(), content) == 0;
       --stop) {
    end -= content.size();
  }
  *text = text->substr(begin, end - begin);
}

StatusOr<size_t> CountField(const nlohmann::json& spec, const char* name) {
  const nlohmann::json& value = Field(spec, name);
  if (value.is_null()) return size_t{0};
  if (!value.is_number_unsigned()) return WrongType(name, value, "a count");
  return value.get<size_t>();
}

}  // namespace

StatusOr<TokenDecoder> TokenDecoder::Create(const nlohmann::json& spec) {
  if (spec.is_null()) return UnimplementedError("tokenizer.json without a decoder");
  TokenDecoder decoder;
  RETURN_IF_ERROR(decoder.Add(spec, 0));
  if (decoder.byte_level_ && !decoder.steps_.empty()) {
    return UnimplementedError("a decoder that mixes ByteLevel with other kinds");
  }
  return decoder;
}

Status TokenDecoder::Add(const nlohmann::json& spec, int depth) {
  if (depth > kMaxDepth) return InvalidArgumentError("decoder is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "decoder"));
  if (kind == "Sequence") {
    for (const auto& item : Field(spec, "decoders")) RETURN_IF_ERROR(Add(item, depth + 1));
  } else if (kind == "ByteLevel") {
    byte_level_ = true;
  } else if (kind == "Replace") {
    const nlohmann::json& from = Field(Field(spec, "pattern"), "String");
    if (!from.is_string()) return UnimplementedError("decoder Replace without a String pattern");
    ASSIGN_OR_RETURN(std::string to, StringField(spec, "content", ""));
    steps_.emplace_back(Replace{from.get<std::string>(), std::move(to)});
  } else if (kind == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (kind == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (kind == "Strip") {
    ASSIGN_OR_RETURN(std::string content, StringField(spec, "content", " "));
    ASSIGN_OR_RETURN(const size_t start, CountField(spec, "start"));
    ASSIGN_OR_RETURN(const size_t stop, CountField(spec, "stop"));
    steps_.emplace_back(Strip{std::move(content), start, stop});
  } else if (kind == "Metaspace") {
    ASSIGN_OR_RETURN(std::string replacement, StringField(spec, "replacement", "\u2581"));
    ASSIGN_OR_RETURN(const std::string scheme, StringField(spec, "prepend_scheme", "always"));
    steps_.emplace_back(Metaspace{std::move(replacement), scheme != "never"});
  } else {
    return UnimplementedError("decoder \"" + kind + "\" is not supported");
  }
  return OkStatus();
}

void TokenDecoder::ApplyStep(const Step& step, std::vector<std::string>* tokens) {
  if (const auto* replace = std::get_if<Replace>(&step)) {
    for (std::string& token : *tokens) ReplaceAll(replace->from, replace->to, &token);
  } else if (std::holds_alternative<ByteFallback>(step)) {
    *tokens = JoinBytes(std::move(*tokens));
  } else if (std::holds_alternative<Fuse>(step)) {
    std::string fused;
    for (const std::string& token : *tokens) fused += token;
    *tokens = {std::move(fused)};
  } else if (const auto* strip = std::get_if<Strip>(&step)) {
    for (std::string& token : *tokens) {
      StripEnds(strip->content, strip->start, strip->stop, &token);
    }
  } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
    for (size_t i = 0; i < tokens->size(); ++i) {
      const bool drop = i == 0 && metaspace->drops_first;
      ReplaceAll(metaspace->replacement, drop ? "" : " ", &(*tokens)[i]);
    }
  }
}

std::string TokenDecoder::Decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) ApplyStep(step, &tokens);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string TokenDecoder::TokenBytes(std::string_view token) const {
  if (byte_level_) return AlphabetToBytes(token).value_or(std::string(token));
  std::string text(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteFallback>(step)) {
      if (const auto byte = FallbackByte(text); byte.has_value()) return std::string(1, *byte);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      ReplaceAll(replace->from, replace->to, &text);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      ReplaceAll(metaspace->replacement, " ", &text);
    }
  }
  return text;
}

}  // namespace tandem
