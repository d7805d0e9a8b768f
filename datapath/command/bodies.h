// What stands behind the public handles, which know these by name alone.
#pragma once

namespace fairlead::inline v0::command {

class ChannelBody {};
class SessionBody {};
class ServiceBody {
 public:
  virtual ~ServiceBody() = default;
};

}  // namespace fairlead::inline v0::command
