#ifndef SVP_ACL_MDL_H
#define SVP_ACL_MDL_H
#include <stddef.h>
#include <stdint.h>
int svp_acl_mdl_load_from_mem(const void *bytes, size_t size, uint32_t *model_id);
int svp_acl_mdl_execute(uint32_t model_id, const void *input, const void *output);
int svp_acl_mdl_unload(uint32_t model_id);
#endif
