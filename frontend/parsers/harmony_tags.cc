// Structural tags of harmony, the message format of gpt-oss: a call or a final message, after at
// most one message of analysis and one of commentary.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "frontend/parsers/tool_tags.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMessage = "<|message|>";
// With and without the marker for the type of the content.
constexpr std::string_view kJsonTypes[] = {" json", " <|constrain|>json"};

// A message may end with the generation.
Json MessageEnd() { return Json::array({"<|end|>", ""}); }

Json OptionalMessage(std::string_view channel) {
  const std::string begin = "<|channel|>" + std::string(channel) + std::string(kMessage);
  return {{"type", "optional"},
          {"content", SequenceFormat({TagFormat(begin, TextFormat(Json::array()), "<|end|>"),
                                      ConstantFormat("<|start|>assistant")})}};
}

// Models write the recipient before the channel or after it.
void AddCalls(const TaggedTool& tool, Json* alternatives) {
  const Json content = SchemaFormat(
      tool.follows_schema && tool.parameters != nullptr ? *tool.parameters : Json(true));
  const std::string recipient = " to=functions." + std::string(tool.name);
  for (const bool recipient_first : {true, false}) {
    for (const std::string_view type : kJsonTypes) {
      for (const char* channel : {"commentary", "analysis", "final"}) {
        std::string begin = std::string("<|channel|>") + channel;
        begin = recipient_first ? recipient + begin : begin + recipient;
        begin += std::string(type) + std::string(kMessage);
        alternatives->push_back(TagFormat(begin, content, MessageEnd()));
      }
    }
  }
}

void AddAnswers(const Json& content, Json* alternatives) {
  for (const std::string_view type : kJsonTypes) {
    const std::string begin = "<|channel|>final" + std::string(type) + std::string(kMessage);
    alternatives->push_back(TagFormat(begin, content, MessageEnd()));
  }
}

}  // namespace

Json HarmonyCallTag(std::span<const TaggedTool> tools, bool allows_answer) {
  Json alternatives = Json::array();
  for (const TaggedTool& tool : tools) AddCalls(tool, &alternatives);
  if (allows_answer) {
    const Json text = TextFormat(Json::array());
    AddAnswers(text, &alternatives);
    alternatives.push_back(TagFormat("<|channel|>final<|message|>", text, MessageEnd()));
  }
  return SequenceFormat({OptionalMessage("analysis"), OptionalMessage("commentary"),
                         EitherFormat(std::move(alternatives))});
}

Json HarmonyAnswerTag(const Json& format) {
  Json alternatives = Json::array();
  AddAnswers(format, &alternatives);
  return SequenceFormat({OptionalMessage("analysis"), EitherFormat(std::move(alternatives))});
}

}  // namespace tandem
