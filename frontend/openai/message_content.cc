#include "frontend/openai/message_content.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/parse.h"

namespace tandem {
namespace {

// The content parts that are text, and the key that holds each one's. To templates they are all of
// type "text".
struct TextPart {
  std::string_view type;
  const char* key;
};
constexpr TextPart kTextParts[] = {{"text", "text"},
                                   {"input_text", "text"},
                                   {"output_text", "text"},
                                   {"refusal", "refusal"},
                                   {"thinking", "thinking"}};

// Its key is data.
constexpr std::string_view kEmbeddedType = "prompt_embeds";

// What stays in an image's place.
constexpr std::string_view kImageType = "image";
constexpr std::string_view kImageUrlType = "image_url";      // of chat: {"url": …}, or a text
constexpr std::string_view kInputImageType = "input_image";  // of responses: a text

const char* TextKey(const std::string& type) {
  for (const TextPart& part : kTextParts) {
    if (part.type == type) return part.key;
  }
  return nullptr;
}

Status UnsupportedPart(const std::string& type) {
  constexpr size_t kMaxShownBytes = 64;
  std::string known;
  for (const TextPart& part : kTextParts) {
    known.append(part.type).append(", ");
  }
  known.append(kImageUrlType).append(", ").append(kInputImageType).append(", ");
  known += kEmbeddedType;
  return InvalidArgumentError("content parts of type " + DumpJson(type.substr(0, kMaxShownBytes)) +
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

Status CheckImage(const std::string& where, const Json& part) {
  const Json* image = Find(part, "image_url");
  const Json* url = image != nullptr && image->is_object() ? Find(*image, "url") : image;
  const Json* uuid = Find(part, "uuid");
  if (uuid != nullptr && !uuid->is_string()) return WrongType(where + "uuid ", "a string", *uuid);
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
    part = {{"type", kImageType}};
  }
  return has_detail;
}

void SetContentForm(bool as_parts, std::string_view image_text, Json* message) {
  Json* const content = &(*message)["content"];  // before what refers to other keys: it may add one
  const Json& role = message->at("role");
  size_t num_images = 0;
  if (content->is_array()) {
    for (const Json& part : *content) num_images += IsImagePart(part) ? 1 : 0;
  }
  as_parts = as_parts && (num_images > 0 || (role != "tool" && role != "function"));
  if (content->is_null()) {
    *content = as_parts ? Json::array() : Json("");
  } else if (content->is_string() && as_parts) {
    *content = Json::array({{{"type", "text"}, {"text", std::move(*content)}}});
  } else if (content->is_array()) {
    Json parts = Json::array();
    std::string text;
    for (const Json& part : *content) {
      if (IsImagePart(part)) parts.push_back(part);
      const std::string* part_text = TextOf(part);
      if (part_text == nullptr) continue;
      if (!text.empty() && !part_text->empty()) text += '\n';
      text += *part_text;
      parts.push_back({{"type", "text"}, {"text", *part_text}});
    }
    if (!as_parts) ShowImages(num_images, image_text, &text);
    *content = as_parts ? std::move(parts) : Json(std::move(text));
  }
}

}  // namespace tandem
