#pragma once

// JSON schemas of request fields that have a parser of their own, for the rows of the field tables:
// /openapi.json shows them. A schema may allow more than its parser, never less: what it refuses
// is refused by the parser. The other rows need none: their member's type and range say it.

#include <string_view>

namespace tandem::field_schema {

inline constexpr std::string_view kText = R"({"type":"string"})";
inline constexpr std::string_view kBoolean = R"({"type":"boolean"})";
inline constexpr std::string_view kObject = R"({"type":"object"})";
inline constexpr std::string_view kTexts = R"({"type":"array","items":{"type":"string"}})";
inline constexpr std::string_view kObjects = R"({"type":"array","items":{"type":"object"}})";
inline constexpr std::string_view kTokenIds =
    R"({"type":"array","items":{"type":"integer","minimum":0}})";
inline constexpr std::string_view kTokenIdRows =
    R"({"type":"array","minItems":1,)"
    R"("items":{"type":"array","items":{"type":"integer","minimum":-1}}})";

inline constexpr std::string_view kStop =
    R"({"anyOf":[{"type":"string","minLength":1},)"
    R"({"type":"array","items":{"type":"string","minLength":1}}]})";
inline constexpr std::string_view kLogitBias =
    R"({"type":"object","additionalProperties":{"type":"number"}})";
inline constexpr std::string_view kStreamOptions =
    R"({"type":"object","properties":{"include_usage":{"type":["boolean","null"]},)"
    R"("continuous_usage_stats":{"type":["boolean","null"]}}})";
inline constexpr std::string_view kRepetitionDetection =
    R"({"type":"object","properties":{"max_pattern_size":{"type":["integer","null"],"minimum":0},)"
    R"("min_pattern_size":{"type":["integer","null"],"minimum":0},)"
    R"("min_count":{"type":["integer","null"],"minimum":0}}})";
inline constexpr std::string_view kResponseFormat =
    R"({"type":"object","required":["type"],"properties":{"type":)"
    R"({"enum":["text","json_object","json_schema","structural_tag"]}}})";

inline constexpr std::string_view kMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":)"
    R"({"role":{"enum":["system","developer","user","assistant","tool","function"]}}}})";
inline constexpr std::string_view kConversations =
    R"({"type":"array","minItems":1,"items":{"anyOf":[{"type":"object","required":["role"]},)"
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"]}}]}})";
inline constexpr std::string_view kTools =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["function"],"properties":)"
    R"({"type":{"const":"function"},"function":{"type":"object","required":["name"],)"
    R"("properties":{"name":{"type":"string","minLength":1},)"
    R"("parameters":{"type":["object","null"]}}}}}})";
inline constexpr std::string_view kToolChoice =
    R"({"anyOf":[{"enum":["none","auto","required"]},{"type":"object"}]})";

inline constexpr std::string_view kPrompt =
    R"({"anyOf":[{"type":"string"},)"
    R"({"type":"array","minItems":1,"items":{"type":"string"}},)"
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","minItems":1,"items":)"
    R"({"type":"array","items":{"type":"integer","minimum":0}}}]})";
inline constexpr std::string_view kPoolingInput =
    R"({"anyOf":[{"type":"string"},)"
    R"({"type":"array","minItems":1,"items":{"type":"string"}},)"
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},)"
    R"({"type":"array","minItems":1,"items":)"
    R"({"type":"array","items":{"type":"integer","minimum":0}}},)"
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"]}},)"
    R"({"type":"array","minItems":1,"items":)"
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"]}}}]})";

inline constexpr std::string_view kTextOrTexts =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";

inline constexpr std::string_view kInput =
    R"({"anyOf":[{"type":"string","minLength":1},)"
    R"({"type":"array","minItems":1,"items":{"type":"object"}}]})";
inline constexpr std::string_view kTextOrObject =
    R"({"anyOf":[{"type":"string"},{"type":"object"}]})";
inline constexpr std::string_view kOutputMode = R"({"enum":["tokens","text","derender"]})";
inline constexpr std::string_view kTruncation = R"({"enum":["auto","disabled"]})";

inline constexpr std::string_view kBlockMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":)"
    R"({"role":{"enum":["user","assistant","system"]}}}})";
inline constexpr std::string_view kTextOrBlocks =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})";
inline constexpr std::string_view kPositive = R"({"type":"integer","minimum":1})";

}  // namespace tandem::field_schema
