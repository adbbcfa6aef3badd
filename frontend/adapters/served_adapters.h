#pragma once

// The adapters that requests may name as their model, as a value that never changes: each load and
// unload makes another one (AdapterDirectory). Shards keep the newest, requests the one of their
// arrival. Thread: any.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct ServedAdapter {
  wire::LoraRequest lora;  // load_inplace is off
  int64_t created = 0;     // unix seconds, when it was loaded first
  // AdapterFilesIdentity when its last load began; empty: not known here.
  std::string files = {};
};

class ServedAdapters {
 public:
  ServedAdapters() = default;
  explicit ServedAdapters(std::vector<ServedAdapter> adapters) : list_(std::move(adapters)) {
    for (size_t i = 0; i < list_.size(); ++i) by_name_.emplace(list_[i].lora.name, i);
  }

  // In the order in which they were loaded.
  const std::vector<ServedAdapter>& list() const { return list_; }
  // Null: there is none. Valid as long as this.
  const ServedAdapter* Find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &list_[found->second];
  }

 private:
  std::vector<ServedAdapter> list_;
  std::unordered_map<std::string, size_t> by_name_;
};

using ServedAdaptersPtr = std::shared_ptr<const ServedAdapters>;

}  // namespace tandem
