#include "frontend/openai/message_content.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/parse.h"

namespace tandem {
namespace {

// A tool that the result of another one has found. Templates that load tools so expand it; to
// others its name is a text.
constexpr std::string_view kReferenceType = "tool_reference";

// The content parts that are text, and the key that holds each one's. To templates they are all of
// type "text", but for references.
struct TextPart {
  std::string_view type;
  const char* key;
};
constexpr TextPart kTextParts[] = {{"text", "text"},         {"input_text", "text"},
                                   {"output_text", "text"},  {"refusal", "refusal"},
                                   {"thinking", "thinking"}, {kReferenceType, "name"}};

// Its key is data.
constexpr std::string_view kEmbeddedType = "prompt_embeds";

// What stays in an image's place.
constexpr std::string_view kImageType = "image";
constexpr std::string_view kImageUrlType = "image_url";      // of chat: {"url": …}, or a text
constexpr std::string_view kInputImageType = "input_image";  // of responses: a text

// Keys that some kind of part has. Templates get the others, whatever they are.
constexpr std::string_view kPartKeys[] = {
    "type",        "text",      "refusal",   "thinking",     "closed",       "name",
    "data",        "uuid",      "image_url", "detail",       "file_id",      "file",
    "input_audio", "audio_url", "video_url", "image_embeds", "audio_embeds", "video_embeds"};

Json WithOtherKeys(Json shown, const Json& part) {
  if (!part.is_object()) return shown;
  for (const auto& [key, value] : part.items()) {
    const bool is_known =
        std::find(std::begin(kPartKeys), std::end(kPartKeys), key) != std::end(kPartKeys);
    if (!is_known) shown[key] = value;
  }
  return shown;
}

// A system's text without the line that IsBillingHeader knows.
std::string_view WithoutBillingLine(std::string_view text) {
  if (!IsBillingHeader(text)) return text;
  const size_t end = text.find('\n');
  return end == text.npos ? std::string_view() : text.substr(end + 1);
}

const char* TextKey(const std::string& type) {
  for (const TextPart& part : kTextParts) {
    if (part.type == type) return part.key;
  }
  return nullptr;
}

Status UnsupportedPart(const std::string& type) {
  std::string known;
  for (const TextPart& part : kTextParts) {
    known.append(part.type).append(", ");
  }
  known.append(kImageUrlType).append(", ").append(kInputImageType).append(", ");
  known += kEmbeddedType;
  return InvalidArgumentError("content parts of type " + DumpJson(Shorten(type)) +
                              " are not supported by this server; supported: " + known)
      .WithParam("messages");
}

// A part that is an image; one without a type is by its key.
bool IsImageUrlPart(const Json& part) {
  if (!part.is_object()) return false;
  const Json* type = Find(part, "type");
  if (type == nullptr) return part.contains(kImageUrlType);
  return *type == kImageUrlType || *type == kInputImageType;
}

// What is in its place.
bool IsImagePart(const Json& part) {
  const Json* type = part.is_object() ? Find(part, "type") : nullptr;
  return type != nullptr && *type == kImageType;
}

bool IsReference(const Json& part) {
  const Json* type = part.is_object() ? Find(part, "type") : nullptr;
  return type != nullptr && *type == kReferenceType;
}

Status CheckImage(const std::string& where, const Json& part) {
  const Json* image = Find(part, "image_url");
  const Json* url = image != nullptr && image->is_object() ? Find(*image, "url") : image;
  const Json* uuid = Find(part, "uuid");
  if (uuid != nullptr && !uuid->is_string()) return WrongType(where + "uuid ", "a string", *uuid);
  if (uuid != nullptr && uuid->get_ref<const std::string&>().empty()) {
    return InvalidArgumentError(where + "uuid must not be empty: it names the image");
  }
  if (url != nullptr && !url->is_string()) {
    return WrongType(where + "image_url ", "a URL, or an object with a url", *url);
  }
  if (Find(part, "file_id") != nullptr) {
    return InvalidArgumentError(
               "images by file_id are not supported by this server; send image_url")
        .WithParam("messages");
  }
  const bool has_url = url != nullptr && !url->get_ref<const std::string&>().empty();
  return has_url || uuid != nullptr ? OkStatus()
                                    : InvalidArgumentError(where + "must have an image_url");
}

// Of a part that was checked; null: it has none.
const std::string* TextOf(const Json& part) {
  if (part.is_string()) return &part.get_ref<const std::string&>();
  if (IsEmbeddedPart(part) || IsImagePart(part)) return nullptr;
  const Json* text = Find(part, TextKey(part.at("type").get_ref<const std::string&>()));
  return text == nullptr ? nullptr : &text->get_ref<const std::string&>();
}

// Images that the text does not show itself, before it, each on a line.
void ShowImages(size_t num_images, std::string_view image_text, std::string* text) {
  if (image_text.empty()) return;
  for (size_t at = 0; num_images > 0; --num_images, at += image_text.size()) {
    at = text->find(image_text, at);
    if (at == text->npos) break;
  }
  std::string images;
  for (size_t i = 0; i < num_images; ++i) images.append(i == 0 ? "" : "\n").append(image_text);
  if (!images.empty() && !text->empty()) images += '\n';
  text->insert(0, images);
}

}  // namespace

std::string JoinTexts(std::span<const std::string_view> texts) {
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) all.append(i == 0 ? "" : "\n").append(texts[i]);
  return all;
}

bool IsBillingHeader(std::string_view text) {
  return text.starts_with("x-anthropic-billing-header");
}

bool IsEmbeddedPart(const Json& part) {
  const Json* type = part.is_object() ? Find(part, "type") : nullptr;
  return type != nullptr && *type == kEmbeddedType;
}

Status CheckContentPart(const std::string& where, const Json& part) {
  if (part.is_string()) return OkStatus();
  if (!part.is_object()) return WrongType(where, "a text part", part);
  if (IsImageUrlPart(part)) return CheckImage(where, part);
  const Json* type = Find(part, "type");
  if (type == nullptr || !type->is_string()) {
    return InvalidArgumentError(where + "must have a type");
  }
  if (*type == kEmbeddedType) {
    const Json* data = Find(part, "data");
    return data != nullptr && data->is_string() ? OkStatus()
                                                : InvalidArgumentError(where + "must have data");
  }
  const char* key = TextKey(type->get_ref<const std::string&>());
  if (key == nullptr) return UnsupportedPart(type->get_ref<const std::string&>());
  // A part whose text is null is left out.
  const auto text = part.find(key);
  if (text == part.end() || !(text->is_string() || text->is_null())) {
    return InvalidArgumentError(where + "must have a " + key);
  }
  return OkStatus();
}

bool TakeImages(Json* message, std::vector<ChatImage>* images) {
  bool has_detail = false;
  const auto content = message->find("content");
  if (content == message->end() || !content->is_array()) return false;
  for (Json& part : *content) {
    if (!IsImageUrlPart(part)) continue;
    ChatImage image;
    if (const auto given = part.find("image_url"); given != part.end()) {
      Json* const url = given->is_object() ? &(*given)["url"] : &*given;
      if (url->is_string()) image.url = std::move(url->get_ref<std::string&>());
      const Json* detail = Find(given->is_object() ? *given : part, "detail");
      if (detail != nullptr && *detail != "auto") has_detail = true;
    }
    if (const Json* uuid = Find(part, "uuid")) image.uuid = uuid->get<std::string>();
    images->push_back(std::move(image));
    part = WithOtherKeys({{"type", kImageType}}, part);
  }
  return has_detail;
}

void SetContentForm(bool as_parts, std::string_view image_text, Json* message) {
  Json* const content = &(*message)["content"];  // before what refers to other keys: it may add one
  const Json& role = message->at("role");
  size_t num_images = 0, num_references = 0;
  if (content->is_array()) {
    for (const Json& part : *content) {
      num_images += IsImagePart(part) ? 1 : 0;
      num_references += IsReference(part) ? 1 : 0;
    }
  }
  const bool is_result = role == "tool" || role == "function";
  as_parts = as_parts && (!is_result || num_images + num_references > 0);
  const bool is_system = role == "system";
  if (is_system && content->is_string()) {
    const auto& text = content->get_ref<const std::string&>();
    if (IsBillingHeader(text)) *content = std::string(WithoutBillingLine(text));
  }
  if (content->is_null()) {
    *content = as_parts ? Json::array() : Json("");
  } else if (content->is_string() && as_parts) {
    *content = Json::array({{{"type", "text"}, {"text", std::move(*content)}}});
  } else if (content->is_array()) {
    Json parts = Json::array();
    std::vector<std::string_view> texts;
    for (const Json& part : *content) {
      if (IsImagePart(part)) parts.push_back(part);
      const std::string* part_text = TextOf(part);
      if (part_text == nullptr) continue;
      const std::string_view shown = is_system ? WithoutBillingLine(*part_text) : *part_text;
      if (shown.empty() && !part_text->empty()) continue;
      texts.push_back(shown);
      parts.push_back(IsReference(part) ? Json({{"type", kReferenceType}, {"name", shown}})
                                        : WithOtherKeys({{"type", "text"}, {"text", shown}}, part));
    }
    if (as_parts) {
      *content = std::move(parts);
    } else {
      std::string text = JoinTexts(texts);
      ShowImages(num_images, image_text, &text);
      *content = std::move(text);
    }
  }
}

}  // namespace tandem
