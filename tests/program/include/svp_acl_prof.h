#ifndef SVP_ACL_PROF_H
#define SVP_ACL_PROF_H
#include <stdint.h>
typedef struct svp_acl_prof_subscribe_config svp_acl_prof_subscribe_config;
svp_acl_prof_subscribe_config *svp_acl_prof_create_subscribe_config(int8_t time_info, int metrics, const void *fd);
int svp_acl_prof_destroy_subscribe_config(const svp_acl_prof_subscribe_config *config);
int svp_acl_prof_model_subscribe(uint32_t model_id, const svp_acl_prof_subscribe_config *config);
int svp_acl_prof_model_unsubscribe(uint32_t model_id);
#endif
