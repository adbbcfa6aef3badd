#pragma once

// Tool calls as structural tags, the form in which grammar compilers take text that is free up to a
// marker: one row per format of calls. Shapes and spellings are vLLM's, so that a model is held to
// the same text behind either server. Pure; any thread.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace tandem {

// How closely calls are held to their tools where a request does not ask for it: not at all, to the
// tools' names, or to their parameters' schemas too.
enum class StrictLevel { kAuto, kFunction, kParameter };

struct TaggedTool {
  std::string_view name;
  const nlohmann::ordered_json* parameters = nullptr;  // a schema; null: none
  bool follows_schema = false;                         // else any arguments
};

struct ToolTags {
  // What a text that must have calls consists of.
  enum class Forced {
    kTags,            // calls
    kTriggered,       // any text, then calls; for a named tool its call alone
    kOuterTag,        // a tag around the list of calls
    kSequence,        // constants around the list of calls
    kSequenceOfList,  // the same, where a named tool's call is a list of one
    kHarmony,         // messages of gpt-oss
  };
  // A call is begin, name, middle, arguments, end.
  struct Call {
    std::string_view begin;
    std::string_view middle;
    std::string_view end;
  };

  Forced forced;
  std::string_view trigger = {};  // ends free text
  Call call = {};
  Call other_call = {};             // a second spelling; empty: there is none
  bool name_is_json = false;        // the name is inside a JSON string
  std::string_view numbered = {};   // after the middle come a number and this; empty: they do not
  std::string_view style = "json";  // of arguments
  // Around the list of calls; empty: calls stand alone.
  std::string_view list_begin = {};
  std::string_view list_end = {};
  std::string_view separator = {};
  std::string_view blanks = {};                    // before a list that tool_choice asks for
  std::string_view excludes = "<think> </think>";  // not in free text; separated by blanks
  // Arguments that need not follow the schema are still its parameters, each a text without these
  // or a value of its type. Empty: they are anything.
  std::string_view value_excludes = {};
  // EBNF of arguments that no style describes: any that are well-formed, whatever the schema.
  std::string_view arguments_grammar = {};
  StrictLevel level = StrictLevel::kAuto;  // the least
};

// The format of the text after the prompt. tools: at least one; exactly one for a named tool.
nlohmann::ordered_json AutoTag(const ToolTags& tags, std::span<const TaggedTool> tools,
                               bool one_call);
nlohmann::ordered_json RequiredTag(const ToolTags& tags, std::span<const TaggedTool> tools,
                                   bool one_call);
nlohmann::ordered_json NamedTag(const ToolTags& tags, const TaggedTool& tool);

// harmony_tags.cc. allows_answer: a message without a call will do.
nlohmann::ordered_json HarmonyCallTag(std::span<const TaggedTool> tools, bool allows_answer);
// A final message whose content has the format.
nlohmann::ordered_json HarmonyAnswerTag(const nlohmann::ordered_json& format);

// Parts that tags are made of.
nlohmann::ordered_json TagFormat(std::string_view begin, nlohmann::ordered_json content,
                                 nlohmann::ordered_json end);
nlohmann::ordered_json SchemaFormat(nlohmann::ordered_json schema, std::string_view style = "json");
nlohmann::ordered_json TextFormat(nlohmann::ordered_json excludes);
nlohmann::ordered_json ConstantFormat(std::string_view value);
nlohmann::ordered_json SequenceFormat(nlohmann::ordered_json elements);
nlohmann::ordered_json EitherFormat(nlohmann::ordered_json elements);

inline constexpr ToolTags kHermesTags = {
    .forced = ToolTags::Forced::kTags,
    .trigger = "<tool_call>",
    .call = {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"},
    .other_call = {"<tool_call>{\"name\": \"", "\", \"arguments\": ", "}</tool_call>"},
    .name_is_json = true,
    .excludes = ""};
inline constexpr ToolTags kLongcatTags = {
    .forced = ToolTags::Forced::kTags,
    .trigger = "<longcat_tool_call>",
    .call = {"<longcat_tool_call>\n{\"name\": \"",
             "\", \"arguments\": ", "}\n</longcat_tool_call>"},
    .other_call = {"<longcat_tool_call>{\"name\": \"",
                   "\", \"arguments\": ", "}</longcat_tool_call>"},
    .name_is_json = true,
    .excludes = ""};
inline constexpr ToolTags kLlamaTags = {.forced = ToolTags::Forced::kTriggered,
                                        .trigger = "{\"name\": ",
                                        .call = {"{\"name\": \"", "\", \"parameters\": ", "}"},
                                        .name_is_json = true};
inline constexpr ToolTags kQwen3CoderTags = {
    .forced = ToolTags::Forced::kTriggered,
    .trigger = "<tool_call>\n<function=",
    .call = {"<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>"},
    .style = "qwen_xml"};
inline constexpr ToolTags kGlmTags = {
    .forced = ToolTags::Forced::kTags,
    .trigger = "<tool_call>",
    .call = {"<tool_call>", "", "</tool_call>"},
    .style = "glm_xml",
    .excludes = "<think> </think> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value>",
    .value_excludes =
        "<think> </think> <tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value>",
    .level = StrictLevel::kFunction};
inline constexpr ToolTags kDeepseekV3Tags = {.forced = ToolTags::Forced::kOuterTag,
                                             .trigger = "<｜tool▁calls▁begin｜>",
                                             .call = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                                                      "\n```json\n", "\n```<｜tool▁call▁end｜>"},
                                             .list_begin = "<｜tool▁calls▁begin｜>",
                                             .list_end = "<｜tool▁calls▁end｜>",
                                             .separator = "\n"};
inline constexpr ToolTags kDeepseekV31Tags = {
    .forced = ToolTags::Forced::kOuterTag,
    .trigger = "<｜tool▁calls▁begin｜>",
    .call = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"},
    .list_begin = "<｜tool▁calls▁begin｜>",
    .list_end = "<｜tool▁calls▁end｜>"};
inline constexpr ToolTags kDeepseekV32Tags = {
    .forced = ToolTags::Forced::kSequence,
    .trigger = "<｜DSML｜function_calls>",
    .call = {"<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>\n"},
    .style = "deepseek_xml",
    .list_begin = "<｜DSML｜function_calls>\n",
    .list_end = "</｜DSML｜function_calls>",
    .blanks = "\n\n"};
inline constexpr ToolTags kDeepseekV4Tags = {
    .forced = ToolTags::Forced::kSequence,
    .trigger = "<｜DSML｜tool_calls>",
    .call = {"<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>\n"},
    .style = "deepseek_xml",
    .list_begin = "<｜DSML｜tool_calls>\n",
    .list_end = "</｜DSML｜tool_calls>",
    .blanks = "\n\n"};
inline constexpr ToolTags kPlamo3Tags = {
    .forced = ToolTags::Forced::kOuterTag,
    .trigger = "<|plamo:begin_tool_requests:plamo|>",
    .call = {"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
             "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
             "<|plamo:constrain|>json<|plamo:msg|>",
             "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"},
    .list_begin = "<|plamo:begin_tool_requests:plamo|>",
    .list_end = "<|plamo:end_tool_requests:plamo|>",
    .excludes = "<|plamo:begin_think:plamo|> <|plamo:end_think:plamo|>"};
inline constexpr ToolTags kKimiTags = {
    .forced = ToolTags::Forced::kSequence,
    .trigger = "<|tool_calls_section_begin|>",
    .call = {"<|tool_call_begin|>functions.", ":", "<|tool_call_end|>"},
    .numbered = "<|tool_call_argument_begin|>",
    .list_begin = "<|tool_calls_section_begin|>",
    .list_end = "<|tool_calls_section_end|>",
    .excludes = "<think> </think> <|tool_call_begin|>"};
inline constexpr ToolTags kMinimaxTags = {.forced = ToolTags::Forced::kSequenceOfList,
                                          .trigger = "<minimax:tool_call>",
                                          .call = {"<invoke name=\"", "\">\n", "</invoke>\n"},
                                          .style = "minimax_xml",
                                          .list_begin = "<minimax:tool_call>\n",
                                          .list_end = "</minimax:tool_call>",
                                          .blanks = "\n"};
// Keys and texts as the model's template writes them; a text has no "<|", which its quotes begin
// with.
inline constexpr ToolTags kGemma4Tags = {.forced = ToolTags::Forced::kTags,
                                         .trigger = "<|tool_call>",
                                         .call = {"<|tool_call>call:", "{", "}<tool_call|>"},
                                         .excludes = "",
                                         .arguments_grammar = R"(root ::= (pair ("," pair)*)?
pair ::= [^:,{}[<>|" \t\r\n\]]+ ":" value
value ::= text | number | "true" | "false" | "null" | list | object
text ::= "<|\"|>" ([^<] | "<"+ [^<|])* "<|\"|>"
number ::= "-"? [0-9]+ ("." [0-9]+)?
list ::= "[" (value ("," value)*)? "]"
object ::= "{" (pair ("," pair)*)? "}"
)"};
inline constexpr ToolTags kHarmonyTags = {.forced = ToolTags::Forced::kHarmony};

}  // namespace tandem
