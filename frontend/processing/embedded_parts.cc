#include "frontend/processing/embedded_parts.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/strings.h"
#include "frontend/openai/message_content.h"

namespace tandem {
namespace {

// Letters and digits: nothing that a template strips or escapes.
constexpr std::string_view kMark = "embeddings";
constexpr char kMarkEnd = 'x';

template <class Use>
void ForEachPart(nlohmann::ordered_json* messages, Use use) {
  for (Json& message : *messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (Json& part : *content) {
      if (IsEmbeddedPart(part)) use(part);
    }
  }
}

}  // namespace

bool HasEmbeddedParts(const Json& messages) {
  for (const Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (const Json& part : *content) {
      if (IsEmbeddedPart(part)) return true;
    }
  }
  return false;
}

EmbeddedParts TakeEmbeddedParts(Json* messages) {
  constexpr int kNumberDigits = 32;
  EmbeddedParts parts;
  ForEachPart(messages, [&](Json& part) {
    if (parts.empty()) parts.number = RandomHex(kNumberDigits);
    parts.base64.push_back(std::move(part.at("data").get_ref<std::string&>()));
    part = {{"type", "text"},
            {"text", std::string(kMark) + parts.number + 'n' +
                         std::to_string(parts.base64.size() - 1) + kMarkEnd}};
  });
  return parts;
}

StatusOr<TextAndParts> CutAtMarks(std::string_view rendered, const EmbeddedParts& parts) {
  TextAndParts cut;
  std::vector<bool> is_shown(parts.base64.size(), false);
  const std::string mark = std::string(kMark) + parts.number + 'n';
  size_t begin = 0;  // of the text
  for (size_t at = 0; (at = rendered.find(mark, at)) != std::string_view::npos;) {
    const size_t digits = at + mark.size();
    size_t index = 0;
    const char* const end = rendered.data() + rendered.size();
    const auto number = std::from_chars(rendered.data() + digits, end, index);
    at = digits;
    const bool is_whole = number.ec == std::errc() && number.ptr != end && *number.ptr == kMarkEnd;
    if (!is_whole || index >= parts.base64.size()) continue;
    cut.texts.push_back(rendered.substr(begin, digits - mark.size() - begin));
    cut.parts.push_back(index);
    is_shown[index] = true;
    begin = static_cast<size_t>(number.ptr - rendered.data()) + 1;
    at = begin;
  }
  cut.texts.push_back(rendered.substr(begin));
  for (size_t i = 0; i < is_shown.size(); ++i) {
    if (is_shown[i]) continue;
    return InvalidArgumentError("the chat template does not show prompt_embeds part " +
                                std::to_string(i))
        .WithParam("messages");
  }
  return cut;
}

}  // namespace tandem
