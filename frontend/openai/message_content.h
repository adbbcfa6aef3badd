#pragma once

// The contents of chat messages: a text, or a list of parts, which are texts, images and
// embeddings. Pure functions; any thread.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "frontend/openai/chat_image.h"
#include "frontend/openai/json.h"

namespace tandem {

// The texts of a content's parts as one text, each on its own line.
std::string JoinTexts(std::span<const std::string_view> texts);

// where: "message 3 content part ", for the error.
Status CheckContentPart(const std::string& where, const Json& part);

// Clients put a line for their provider's accounts into the system prompt; it differs from request
// to request and would spoil the prefix cache. Whether the text begins with it.
bool IsBillingHeader(std::string_view text);

// Whether a checked part is embeddings.
bool IsEmbeddedPart(const Json& part);

// Moves the images of a checked message out of it, and leaves {"type": "image"} in each one's
// place. Returns whether one of them asks for a resolution.
bool TakeImages(Json* message, std::vector<ChatImage>* images);

// A message's parts as one text, or its text as one part. A message without content, such as an
// assistant's turn of tool calls only, gets an empty one: templates concatenate it. A tool's result
// of texts is always one text: even templates that loop over parts print it as it is.
// Keys of parts that no kind of part has are kept; a system's billing header is not.
// image_text: what stands for an image before a content that is one text.
void SetContentForm(bool as_parts, std::string_view image_text, Json* message);

}  // namespace tandem
