#pragma once

// An image of a conversation: where it comes from and, once it was loaded, what the model takes.
// Value; any thread.

#include <memory>
#include <optional>
#include <string>

namespace tandem {

struct PreparedImage;

struct ChatImage {
  std::string url;                  // data:, http(s): or file:; "": known by its uuid alone
  std::optional<std::string> uuid;  // what the client calls it, in place of its content
  // Set by who loads it.
  std::string hash = {};
  std::shared_ptr<const PreparedImage> prepared = {};  // null: it is not loaded
};

}  // namespace tandem
