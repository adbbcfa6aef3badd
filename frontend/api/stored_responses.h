#pragma once

// The responses that a server keeps, so that clients can fetch, continue or cancel them by their
// id: a table with bounds on entries and bytes. Room is made by dropping the ended response that
// was not used for the longest time; one that still runs is never dropped.
// Thread: one (ResponseStore's owner). Values and callbacks; knows no sockets and no time.
// Failure: NOT_FOUND for an id that is not there, RESOURCE_EXHAUSTED when only running ones are.

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/status.h"

namespace tandem {

struct StoredResponseLimits {
  int64_t num_entries = 1000;
  int64_t num_bytes = 256 << 20;
};

// Not changed once it is in the table: readers on other threads share it.
struct StoredResponse {
  std::string body;          // the response object, as JSON text
  std::string conversation;  // the chat messages before its output, without instructions: JSON text
  bool running = false;      // goes on in the background
};
using StoredResponsePtr = std::shared_ptr<const StoredResponse>;

class StoredResponses {
 public:
  // Ends a response that runs. why: OK when a client wants it, else what it fails with.
  using Stop = std::function<void(const Status& why)>;
  // Takes the next events of a response; is_end: none follow. False: wants no more.
  using Follower = std::function<bool(std::string_view events, bool is_end)>;
  using Reply = std::function<void(StatusOr<StoredResponsePtr>)>;

  explicit StoredResponses(const StoredResponseLimits& limits) : limits_(limits) {}

  // Keeps a response that has ended, in place of an earlier one of the same id. It is left out,
  // with a line in the log, when it alone is larger than the table.
  void Put(const std::string& id, StoredResponse response);

  // A response that begins to run. keeps_events: Append follows.
  Status Begin(const std::string& id, StoredResponse response, bool keeps_events, Stop stop);
  // The object of a running response has changed.
  void Update(const std::string& id, std::string body);
  // Whole events of a running response. Where there is no room for them the response is stopped.
  void Append(const std::string& id, std::string_view events);
  // A running response has ended.
  void End(const std::string& id, std::string body);

  StatusOr<StoredResponsePtr> Find(const std::string& id);
  // Stops a running response; replies once it has ended. Refuses one that does not run.
  void Cancel(const std::string& id, Reply reply);
  Status Remove(const std::string& id);
  // Gives the follower the events with a number above `after`, and then those to come.
  Status Follow(const std::string& id, int64_t after, Follower follower);

  size_t num_entries() const { return entries_.size(); }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Entry {
    std::string id;
    StoredResponsePtr response;
    Stop stop;
    bool keeps_events = false;
    std::string events;
    std::vector<size_t> event_ends;  // of each event in `events`
    std::vector<Follower> followers;
    std::vector<Reply> waiting;  // for the end
    int64_t bytes = 0;           // as counted in num_bytes_
  };
  using Entries = std::list<Entry>;  // the one used last at the end

  Entry* Use(const std::string& id);  // null when it is not there
  Entry* Add(const std::string& id);
  void SetResponse(Entry* entry, StoredResponse response);
  void Recount(Entry* entry);
  void Drop(Entries::iterator entry);
  // Drops ended entries until both limits hold. False when they cannot.
  bool MakeRoom(int64_t num_more_entries, int64_t num_more_bytes);

  const StoredResponseLimits limits_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_id_;
  int64_t num_bytes_ = 0;
};

// "Response with id 'X' not found.", and why it may not be there.
Status NoSuchResponse(std::string_view id, std::string_view why);

}  // namespace tandem
